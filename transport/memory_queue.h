#ifndef HAWSER_TRANSPORT_MEMORY_QUEUE_H_
#define HAWSER_TRANSPORT_MEMORY_QUEUE_H_

#include <atomic>
#include <cstddef>

#include "hawser/base/intrusive_list.h"
#include "hawser/transport/buffer_pool.h"
#include "hawser/transport/poller_services.h"
#include "hawser/transport/timer.h"

namespace hawser::transport {

struct InMemoryQueue;

// Word from the pool, on any thread, that memory may be free, kept for the next turn of a poller.
// Thread: on the poller, but for what the pool calls.
class MemoryNews final : MemoryWaiter {
 public:
  // `on_news` is called by Deliver().
  MemoryNews(PollerServices& poller, absl::AnyInvocable<void()> on_news);
  ~MemoryNews();

  // Asks for word of `size_bytes`, after TryAcquire() said `why`. What was free before is not told of.
  void Await(size_t size_bytes, Shortage why);
  void StopAwaiting();

  // For the poller, in each turn.
  bool arrived() const { return arrived_.load(std::memory_order_relaxed); }
  void Deliver();

 private:
  void OnMemoryMayBeFree() override;

  PollerServices& poller_;
  absl::AnyInvocable<void()> on_news_;
  std::atomic<bool> arrived_{false};
  Timer refused_timer_;  // The system refused memory: nothing tells when it would not.
};

// Those of one poller that want small buffers while the pool has none: first come, first served, and nothing
// that waits here looks for memory by itself.
// Thread:   on the poller.
class MemoryQueue {
 public:
  // Lifetime: it leaves the queue when it is destroyed.
  class Waiter : public ListLink<InMemoryQueue> {
   public:
    virtual ~Waiter() = default;
    bool waits_for_memory() const { return linked(); }

   private:
    friend class MemoryQueue;
    // Tries again. True: it has what it wants, and has left the queue when this returns to it. False: `why`
    // says why there is none still; it keeps its place.
    virtual bool OnMemory(Shortage& why) = 0;

    size_t size_bytes_ = 0;
  };

  explicit MemoryQueue(PollerServices& poller);

  // `waiter` was refused `size_bytes`. It tries once more before this returns if none waits before it.
  // Without effect if it waits already.
  void Wait(Waiter& waiter, size_t size_bytes);

  MemoryNews& news() { return news_; }

 private:
  void Serve();

  IntrusiveList<Waiter, InMemoryQueue> waiting_;
  bool serving_ = false;
  MemoryNews news_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_QUEUE_H_
