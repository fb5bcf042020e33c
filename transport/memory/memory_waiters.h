#ifndef HAWSER_TRANSPORT_MEMORY_MEMORY_WAITERS_H_
#define HAWSER_TRANSPORT_MEMORY_MEMORY_WAITERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace hawser::transport {

// Is notified once that memory may be free; see BufferPool::Await().
class MemoryWaiter {
 public:
  // Called on any thread, by the code that returned the memory, perhaps with locks of the application held:
  // sets a flag and wakes a poller, and does nothing else. May call Await() and StopAwaiting() of the pool.
  virtual void OnMemoryMayBeFree() = 0;

 protected:
  ~MemoryWaiter() = default;
};

// The waiters for memory of one pool, and the size that each waits for.
// Thread:   any.
// Lifetime: that of its pool. A waiter is in it until it was notified or has left.
//
// No notice is lost: a waiter enters, then tries once more to get memory; a thread that frees memory
// publishes that, then checks whether there are waiters. Both are sequentially consistent, so one of the two
// sees the other.
class MemoryWaiters {
 public:
  // For a buffer of `size_class`. Replaces the class of a waiter that is in the list already.
  void Add(MemoryWaiter& waiter, size_t size_class);

  // When this returns, no call to `waiter` is running, except one that this is called from.
  void Remove(MemoryWaiter& waiter);

  // Whether anything waits for a small buffer, or for any: a load, for the path of each return.
  bool any_small() const { return (waiting_.load(std::memory_order_seq_cst) & kSmall) != 0; }
  bool any() const { return waiting_.load(std::memory_order_seq_cst) != 0; }

  // Notifies the waiters whose class satisfies `may_be_served`, in the order in which they came, and removes
  // them.
  void Notify(absl::FunctionRef<bool(size_t size_class)> may_be_served);

 private:
  static constexpr uint32_t kSmall = 1;
  static constexpr uint32_t kLarge = 2;

  struct Waiting {
    MemoryWaiter* waiter;
    size_t size_class;
    uint64_t number;
  };
  struct Call {
    MemoryWaiter* waiter;
    std::thread::id thread;
  };

  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CalledElsewhere(const MemoryWaiter& waiter) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<uint32_t> waiting_{0};
  absl::Mutex mutex_;
  absl::CondVar call_ended_;
  std::vector<Waiting> list_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);  // Running now.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_MEMORY_WAITERS_H_
