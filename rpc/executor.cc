#include "hawser/rpc/executor.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/fork.h"
#include "hawser/base/thread.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/tracing.h"

namespace hawser {
namespace {

constexpr int kThreadsMax = 1024;

}  // namespace

class Executor::Threads {
 public:
  explicit Threads(size_t queue_max) : queue_max_(queue_max) {}

  absl::Status Start(int count) {
    for (int i = 0; i < count; ++i) {
      absl::StatusOr<std::thread> thread = StartThread("hawser-executor", [this] { Work(); });
      if (!thread.ok()) return thread.status();
      threads_.push_back(*std::move(thread));
    }
    return absl::OkStatus();
  }
  // Returns once what is queued has run.
  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }
  bool in_child() const { return fork_mark_.in_child(); }
  size_t queue_max() const { return queue_max_; }

  // `owner`: see Remove(); may be null. Sets `is_queued`, if it is not null, before another thread can take
  // the work.
  bool Add(absl::AnyInvocable<void()> work, const void* owner = nullptr, bool* is_queued = nullptr) {
    absl::MutexLock lock(&mutex_);
    if (queue_.size() >= queue_max_) return false;
    if (is_queued != nullptr) *is_queued = true;
    queue_.push_back({std::move(work), owner});
    return true;
  }
  // Removes the work of `owner`, unless a thread has taken it.
  void Remove(const void* owner) {
    absl::MutexLock lock(&mutex_);
    const auto at = std::find_if(queue_.begin(), queue_.end(),
                                 [owner](const Queued& each) { return each.owner == owner; });
    if (at != queue_.end()) queue_.erase(at);
  }

 private:
  struct Queued {
    absl::AnyInvocable<void()> work;
    const void* owner;
  };

  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_stopping_ || !queue_.empty(); }

  void Work() {
    while (true) {
      absl::AnyInvocable<void()> work;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &Threads::HasNews));
        if (queue_.empty()) return;
        work = std::move(queue_.front().work);
        queue_.pop_front();
      }
      internal::CallUser("work of", "an Executor", [&] { work(); });
    }
  }

  const size_t queue_max_;
  const ForkMark fork_mark_;
  std::vector<std::thread> threads_;
  absl::Mutex mutex_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(const Options& options) {
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("Executor::Options::threads is ", options.threads, "; it can be 1 to ", kThreadsMax));
  }
  if (options.queue_max < 1) {
    return absl::InvalidArgumentError("Executor::Options::queue_max is 0; it is at least 1");
  }
  auto threads = std::make_unique<Threads>(options.queue_max);
  if (absl::Status started = threads->Start(options.threads); !started.ok()) {
    threads->Stop();
    return started;
  }
  return std::unique_ptr<Executor>(new Executor(threads.release()));
}

Executor::~Executor() {
  if (threads_->in_child()) return;
  threads_->Stop();
  delete threads_;
}

bool Executor::Run(absl::AnyInvocable<void()> work) {
  if (threads_->in_child()) return false;
  return work == nullptr || threads_->Add(std::move(work));
}

std::function<void(absl::AnyInvocable<void()> handler)> Executor::ForHandlers() {
  return [this](absl::AnyInvocable<void()> handler) { Run(std::move(handler)); };
}

Executor::Scheduled::~Scheduled() {
  if (is_queued_ && !executor_.threads_->in_child()) executor_.threads_->Remove(this);
}

bool Executor::Scheduled::await_suspend(std::coroutine_handle<> waiting) {
  Threads& threads = *executor_.threads_;
  if (threads.in_child()) return false;
  return threads.Add(
      [waiting, trace = internal::CurrentTrace()] {
        const internal::TraceScope scope(trace);
        waiting.resume();
      },
      this, &is_queued_);
}

absl::Status Executor::Scheduled::await_resume() {
  if (std::exchange(is_queued_, false)) return absl::OkStatus();
  if (executor_.threads_->in_child()) {
    return absl::FailedPreconditionError("this process is a child made by fork() after the Executor was");
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the queue of the executor is full: ", executor_.threads_->queue_max(),
                   " wait for a thread (Executor::Options::queue_max)"));
}

}  // namespace hawser
