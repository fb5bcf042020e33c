#include "hawser/rpc/serving/handler_gate.h"

namespace hawser::internal {
namespace {

constexpr uint64_t kClosed = 1;
constexpr uint64_t kOne = 2;

thread_local const HandlerGate::Entry* innermost = nullptr;

}  // namespace

HandlerGate::Entry::Entry(HandlerGate& gate) : gate_(gate), inside_(gate.Enter()), outer_(innermost) {
  innermost = this;
}

HandlerGate::Entry::~Entry() {
  innermost = outer_;
  if (inside_) gate_.Leave();
}

bool HandlerGate::Enter() {
  if ((state_.load(std::memory_order_relaxed) & kClosed) != 0) return false;
  if ((state_.fetch_add(kOne, std::memory_order_acq_rel) & kClosed) == 0) return true;
  Leave();
  return false;
}

// The last thread that leaves a closed gate signals under the lock. Otherwise the signal could fall between
// the check of AwaitEmpty() and its wait.
void HandlerGate::Leave() {
  if (state_.fetch_sub(kOne, std::memory_order_acq_rel) != kOne + kClosed) return;
  absl::MutexLock lock(&mutex_);
  left_.SignalAll();
}

bool HandlerGate::InsideOnThisThread() const {
  for (const Entry* entry = innermost; entry != nullptr; entry = entry->outer_) {
    if (&entry->gate_ == this && entry->inside_) return true;
  }
  return false;
}

void HandlerGate::Close() { state_.fetch_or(kClosed, std::memory_order_acq_rel); }

bool HandlerGate::AwaitEmpty(transport::Environment& environment, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  return environment.Await(
      mutex_, left_, [this] { return state_.load(std::memory_order_acquire) < kOne; }, deadline);
}

}  // namespace hawser::internal
