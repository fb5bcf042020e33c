#include "hawser/transport/lane/arrivals.h"

#include <algorithm>
#include <utility>

namespace hawser::transport {
namespace {

constexpr CalledCode kCallback{"the callback of"};

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Arrivals::Arrivals() : id_(NextId()) {}

bool Arrivals::CallWhen(uint64_t n, Callback callback) {
  absl::MutexLock lock(&mutex_);
  if (count_.load(std::memory_order_relaxed) >= n) return false;
  if (!ended_) callbacks_.emplace(n, std::move(callback));
  return true;
}

// The store is with the lock, so that CallWhen() either sees the new count, or has its callback found here.
uint64_t Arrivals::Add(uint64_t n) {
  absl::MutexLock lock(&mutex_);
  const uint64_t reached = count_.load(std::memory_order_relaxed) + n;
  count_.store(reached, std::memory_order_release);
  return reached;
}

// No more than that: one that waits for the next WRITE again and again would hold this poller while others
// count.
void Arrivals::RunCallbacks(uint64_t reached, Poller& poller) {
  poller.AssertHeld();
  while (RunNext(reached, poller)) continue;
}

bool Arrivals::RunNext(uint64_t reached, Poller& poller) {
  Callback callback;
  {
    absl::MutexLock lock(&mutex_);
    const auto first = callbacks_.begin();
    if (first == callbacks_.end() || first->first > reached) return false;
    callback = std::move(first->second);
    callbacks_.erase(first);
    running_.push_back(std::this_thread::get_id());
  }
  {
    const Poller::CallOut out(poller, kCallback, "an arrival counter");
    callback();
    callback = nullptr;
  }
  absl::MutexLock lock(&mutex_);
  running_.erase(std::find(running_.begin(), running_.end(), std::this_thread::get_id()));
  left_.SignalAll();
  return true;
}

void Arrivals::End() {
  std::multimap<uint64_t, Callback> dropped;  // Destroyed without the lock.
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  dropped.swap(callbacks_);
  const std::thread::id self = std::this_thread::get_id();
  while (!std::all_of(running_.begin(), running_.end(),
                      [self](const std::thread::id& each) { return each == self; })) {
    left_.Wait(&mutex_);
  }
}

bool Arrivals::ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

}  // namespace hawser::transport
