#ifndef IMAGES_THREAD_POOL_H_
#define IMAGES_THREAD_POOL_H_

#include <coroutine>
#include <cstddef>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace images {

// Threads for work that takes too long for a poller, and a queue. A coroutine enters the pool:
//
//   if (!co_await pool.Enter()) co_return absl::ResourceExhaustedError("...");
//   Work();  // This and all that follows runs on a thread of the pool.
//
// Thread:   any.
// Lifetime: the destructor runs all queued coroutines. A coroutine that uses the pool must end before that,
//           or by itself.
class ThreadPool {
 public:
  class Entry {
   public:
    explicit Entry(ThreadPool& pool) : pool_(pool) {}
    bool await_ready() const { return false; }
    bool await_suspend(std::coroutine_handle<> waiting) { return pool_.Enqueue(waiting, entered_); }
    bool await_resume() const { return entered_; }

   private:
    ThreadPool& pool_;
    bool entered_ = false;
  };

  // `queue_max`: the most coroutines that wait for a thread.
  ThreadPool(int threads, size_t queue_max);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // If the queue is full, co_await returns false at once, on the same thread.
  Entry Enter() { return Entry(*this); }

 private:
  bool Enqueue(std::coroutine_handle<> waiting, bool& entered);
  void Work();

  const size_t queue_max_;
  absl::Mutex mutex_;
  std::deque<std::coroutine_handle<>> queue_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace images

#endif  // IMAGES_THREAD_POOL_H_
