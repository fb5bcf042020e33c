#include "hawser/transport/fabric/verbs/control_thread.h"

#include <utility>

#include "absl/status/statusor.h"
#include "hawser/base/thread.h"

namespace hawser::fabric {

VerbsControlThread::~VerbsControlThread() {
  std::thread thread;
  {
    absl::MutexLock lock(&mutex_);
    ends_ = true;
    changed_.Signal();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

void VerbsControlThread::Run(absl::AnyInvocable<void()> command) {
  {
    absl::MutexLock lock(&mutex_);
    if (!thread_.joinable()) {
      absl::StatusOr<std::thread> thread = StartThread("hawser-control", [this] { Serve(); });
      if (thread.ok()) thread_ = *std::move(thread);
    }
    if (thread_.joinable()) {
      commands_.push_back(std::move(command));
      changed_.Signal();
      return;
    }
  }
  command();
}

void VerbsControlThread::Serve() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    while (commands_.empty() && !ends_) changed_.Wait(&mutex_);
    if (commands_.empty()) return;
    absl::AnyInvocable<void()> command = std::move(commands_.front());
    commands_.pop_front();
    mutex_.Unlock();
    command();
    command = nullptr;  // What it owns is destroyed without the lock.
    mutex_.Lock();
  }
}

VerbsConnectThreads::~VerbsConnectThreads() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](size_t* threads) { return *threads == 0; }, &threads_));
}

bool VerbsConnectThreads::Run(const void* key, absl::AnyInvocable<void()>& command) {
  absl::MutexLock lock(&mutex_);
  if (!commands_.contains(key)) {
    absl::StatusOr<std::thread> thread = StartThread("hawser-connect", [this, key] { Serve(key); });
    if (!thread.ok()) return false;
    thread->detach();
    ++threads_;
  }
  commands_[key].push_back(std::move(command));
  return true;
}

void VerbsConnectThreads::Serve(const void* key) {
  absl::MutexLock lock(&mutex_);
  while (!commands_[key].empty()) {
    absl::AnyInvocable<void()> command = std::move(commands_[key].front());
    commands_[key].pop_front();
    mutex_.Unlock();
    command();
    command = nullptr;
    mutex_.Lock();
  }
  commands_.erase(key);
  --threads_;
}

}  // namespace hawser::fabric
