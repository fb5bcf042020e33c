#include "images/thread_pool.h"

namespace images {

ThreadPool::ThreadPool(int threads, size_t queue_max) : queue_max_(queue_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool ThreadPool::Enqueue(std::coroutine_handle<> waiting, bool& entered) {
  absl::MutexLock lock(&mutex_);
  entered = queue_.size() < queue_max_;
  // When the lock is released, the coroutine may resume and destroy `entered`.
  const bool suspends = entered;
  if (suspends) queue_.push_back(waiting);
  return suspends;
}

void ThreadPool::Work() {
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !queue_.empty(); };
  while (true) {
    std::coroutine_handle<> next;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&has_news));
      if (queue_.empty()) return;
      next = queue_.front();
      queue_.pop_front();
    }
    next.resume();
  }
}

}  // namespace images
