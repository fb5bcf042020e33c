#include "hawser/transport/memory/memory_waiters.h"

#include <algorithm>

#include "hawser/transport/memory/size_class.h"

namespace hawser::transport {

void MemoryWaiters::Add(MemoryWaiter& waiter, size_t size_class) {
  absl::MutexLock lock(&mutex_);
  const auto same = [&](const Waiting& each) { return each.waiter == &waiter; };
  if (const auto found = std::find_if(list_.begin(), list_.end(), same); found != list_.end()) {
    found->size_class = size_class;
  } else {
    list_.push_back({&waiter, size_class, next_number_++});
  }
  Publish();
}

void MemoryWaiters::Remove(MemoryWaiter& waiter) {
  absl::MutexLock lock(&mutex_);
  const auto same = [&](const Waiting& each) { return each.waiter == &waiter; };
  list_.erase(std::remove_if(list_.begin(), list_.end(), same), list_.end());
  Publish();
  while (CalledElsewhere(waiter)) call_ended_.Wait(&mutex_);
}

void MemoryWaiters::Notify(absl::FunctionRef<bool(size_t size_class)> may_be_served) {
  const std::thread::id self = std::this_thread::get_id();
  absl::MutexLock lock(&mutex_);
  // A waiter that waits again while it is being notified is not notified again by this call.
  const uint64_t end = next_number_;
  const auto next = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::find_if(list_.begin(), list_.end(), [&](const Waiting& each) {
      return each.number < end && may_be_served(each.size_class);
    });
  };
  // From the start each time: the list may have changed during the call.
  for (auto found = next(); found != list_.end(); found = next()) {
    MemoryWaiter* const waiter = found->waiter;
    list_.erase(found);
    Publish();
    calls_.push_back({waiter, self});
    mutex_.Unlock();
    waiter->OnMemoryMayBeFree();
    mutex_.Lock();
    calls_.erase(std::find_if(calls_.begin(), calls_.end(), [&](const Call& call) {
      return call.waiter == waiter && call.thread == self;
    }));
    call_ended_.SignalAll();
  }
}

void MemoryWaiters::Publish() {
  uint32_t waiting = 0;
  for (const Waiting& each : list_) waiting |= IsSmall(each.size_class) ? kSmall : kLarge;
  waiting_.store(waiting, std::memory_order_seq_cst);
}

bool MemoryWaiters::CalledElsewhere(const MemoryWaiter& waiter) const {
  return std::any_of(calls_.begin(), calls_.end(), [&](const Call& call) {
    return call.waiter == &waiter && call.thread != std::this_thread::get_id();
  });
}

}  // namespace hawser::transport
