#ifndef HAWSER_TRANSPORT_SHARING_MEMORY_QUEUE_H_
#define HAWSER_TRANSPORT_SHARING_MEMORY_QUEUE_H_

#include <atomic>
#include <cstddef>

#include "hawser/base/intrusive_list.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/sharing/poller_services.h"

namespace hawser::transport {

struct InMemoryQueue;

// Takes the pool's notice that memory may be free, on any thread, and delivers it in the poller's next turn.
// Thread: on the poller, except the function that the pool calls.
class MemoryNews final : MemoryWaiter {
 public:
  // `on_news` is called by Deliver().
  MemoryNews(PollerServices& poller, absl::AnyInvocable<void()> on_news);
  ~MemoryNews();

  // Asks for notice of `size_bytes`, which TryAcquire() has refused for `why`. It does not report memory
  // freed before this call.
  void Await(size_t size_bytes, Shortage why);
  void StopAwaiting();
  // The system has refused memory, and the pause until the next try is not over.
  bool tries_again_soon() const { return refused_timer_.is_set(); }

  // For the poller, in each turn.
  bool arrived() const { return arrived_.load(std::memory_order_relaxed); }
  void Deliver();

  // on_news() is called in the poller's next turn. On any thread; takes no lock.
  void OnMemoryMayBeFree() override;

 private:
  PollerServices& poller_;
  absl::AnyInvocable<void()> on_news_;
  std::atomic<bool> arrived_{false};
  Timer refused_timer_;  // The system has refused memory, and does not notify when it would not any more.
};

// The objects of one poller that need small buffers while the pool has none: first come, first served. What
// waits here does not try the pool by itself.
// Thread:   on the poller.
class MemoryQueue {
 public:
  // Lifetime: it leaves the queue when it is destroyed.
  class Waiter : ListLink<InMemoryQueue> {
   public:
    virtual ~Waiter() { StopWaiting(); }
    bool waits_for_memory() const { return linked(); }
    // It leaves the queue. If it was the first there, the next one tries in the poller's next turn, or at the
    // end of the pause after a refusal. The next one may need a smaller buffer, and the pool may have one.
    // Without effect if it does not wait.
    void StopWaiting();

   private:
    friend IntrusiveList<Waiter, InMemoryQueue>;
    friend class MemoryQueue;
    // Tries again. True: it has what it wants; the queue has removed it. False: there is still none, for
    // `why`, and it keeps its place.
    virtual bool OnMemory(Shortage& why) = 0;

    MemoryQueue* queue_ = nullptr;  // While it waits.
    size_t size_bytes_ = 0;
  };

  explicit MemoryQueue(PollerServices& poller);

  // The pool has refused `waiter` `size_bytes`. If none waits before it, it tries once more before this
  // returns. No effect if it waits already.
  void Wait(Waiter& waiter, size_t size_bytes);

  MemoryNews& news() { return news_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  void Serve();

  IntrusiveList<Waiter, InMemoryQueue> waiting_;
  bool serving_ = false;
  MemoryNews news_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SHARING_MEMORY_QUEUE_H_
