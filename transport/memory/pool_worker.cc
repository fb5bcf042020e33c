#include "hawser/transport/memory/pool_worker.h"

#include <unistd.h>

#include "absl/time/clock.h"
#include "hawser/base/steady_now.h"
#include "hawser/base/thread.h"

namespace hawser::transport {

namespace {

// Shorter than what a caller waits before it tries again (BufferPool, kRefused).
constexpr absl::Duration kRefusedFor = absl::Milliseconds(50);

// The classes that are cut from parts share slabs.
size_t OneOfThoseInParts(size_t size_class) { return IsInParts(size_class) ? 0 : size_class; }

}  // namespace

PoolWorker::PoolWorker(SlabStore& slabs, BufferCaches& caches, bool may_start_thread, absl::Duration idle)
    : slabs_(slabs), caches_(caches), interval_(idle / 2), available_(may_start_thread) {}

Shortage PoolWorker::RequestGrowth(size_t size_class) {
  return Request({.is_ahead = false, .size_class = OneOfThoseInParts(size_class)});
}

void PoolWorker::RequestGrowthAhead(size_t size_class) {
  Request({.is_ahead = true, .size_class = OneOfThoseInParts(size_class)});
}

Shortage PoolWorker::Request(const Wanted& wanted) {
  absl::MutexLock lock(&mutex_);
  if (const auto refused = refused_.find(wanted); refused != refused_.end()) {
    if (SteadyNow() < refused->second) return Shortage::kRefused;
    refused_.erase(refused);
  }
  if (!Start()) return Shortage::kRefused;
  if (wanted_.insert(wanted).second) changed_.Signal();
  return Shortage::kGrowing;
}

void PoolWorker::StartWatching() {
  if (!available() || interval_ == absl::InfiniteDuration() || slabs_.idle_bytes() <= kKeepBytes) return;
  absl::MutexLock lock(&mutex_);
  if (!Start()) return;
  watching_.store(true, std::memory_order_seq_cst);
  changed_.Signal();
}

bool PoolWorker::Start() {
  if (stopping_ || !available()) return false;
  if (thread_.joinable()) return true;
  absl::StatusOr<std::thread> started = StartThread("hawser-pool", [this] { Run(); });
  if (!started.ok()) {  // Without the thread, callers do its work.
    available_.store(false, std::memory_order_relaxed);
    return false;
  }
  thread_ = *std::move(started);
  process_.store(getpid(), std::memory_order_relaxed);
  return true;
}

void PoolWorker::Run() {
  absl::MutexLock lock(&mutex_);
  absl::Time next_step = absl::InfiniteFuture();
  while (!stopping_) {
    if (!wanted_.empty()) {
      const Wanted wanted = *wanted_.begin();
      Shortage why;
      mutex_.Unlock();
      const bool grown = wanted.is_ahead ? slabs_.GrowAhead(wanted.size_class, why)
                                         : slabs_.GrowIdle(wanted.size_class, why);
      mutex_.Lock();
      wanted_.erase(wanted);
      if (!grown && why == Shortage::kRefused) refused_[wanted] = SteadyNow() + kRefusedFor;
      mutex_.Unlock();
      slabs_.NotifyWaiters(wanted.size_class);
      NoteIdle();  // Perhaps no waiter takes it.
      mutex_.Lock();
    } else if (!watching_.load(std::memory_order_relaxed)) {
      next_step = absl::InfiniteFuture();
      changed_.Wait(&mutex_);
    } else if (next_step == absl::InfiniteFuture()) {
      next_step = absl::Now() + interval_;
    } else if (changed_.WaitWithDeadline(&mutex_, next_step) && wanted_.empty() && !stopping_) {
      mutex_.Unlock();
      const bool more = GiveBackIdle();
      mutex_.Lock();
      if (!more) {
        watching_.store(false, std::memory_order_seq_cst);
        if (slabs_.idle_bytes() > kKeepBytes) watching_.store(true, std::memory_order_seq_cst);
      }
      next_step = absl::InfiniteFuture();
    }
  }
}

bool PoolWorker::GiveBackIdle() {
  // Blocks in callers' caches keep whole slabs in use. The callers flush their caches when they are notified,
  // in time for the next step.
  caches_.RequestFlush();
  slabs_.Unmap(kKeepBytes, /*marked_only=*/true);
  slabs_.MarkIdle();
  return slabs_.idle_bytes() > kKeepBytes;
}

bool PoolWorker::Stop() {
  if (const pid_t process = process_.load(std::memory_order_relaxed); process != 0 && process != getpid()) {
    return false;
  }
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  return true;
}

}  // namespace hawser::transport
