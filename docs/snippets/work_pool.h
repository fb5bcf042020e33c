#ifndef DOCS_SNIPPETS_WORK_POOL_H_
#define DOCS_SNIPPETS_WORK_POOL_H_

#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

// Threads that run work in the order in which it is added. The destructor runs what is left.
// Thread: any.
class WorkPool {
 public:
  explicit WorkPool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~WorkPool() {
    {
      absl::MutexLock lock(&mutex_);
      ends_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Never blocks.
  void Add(absl::AnyInvocable<void()> work) {
    absl::MutexLock lock(&mutex_);
    work_.push_back(std::move(work));
  }

 private:
  bool HasNewsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ends_ || !work_.empty(); }

  void Work() {
    while (true) {
      absl::AnyInvocable<void()> next;
      {
        absl::MutexLock lock(&mutex_, absl::Condition(this, &WorkPool::HasNewsLocked));
        if (work_.empty()) return;
        next = std::move(work_.front());
        work_.pop_front();
      }
      next();
    }
  }

  absl::Mutex mutex_;
  std::deque<absl::AnyInvocable<void()>> work_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

#endif  // DOCS_SNIPPETS_WORK_POOL_H_
