#include "hawser/rpc/handler_gate.h"

namespace hawser::internal {
namespace {

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
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  ++inside_;
  return true;
}

void HandlerGate::Leave() {
  absl::MutexLock lock(&mutex_);
  if (--inside_ == 0 && closed_) left_.SignalAll();
}

bool HandlerGate::InsideOnThisThread() const {
  for (const Entry* entry = innermost; entry != nullptr; entry = entry->outer_) {
    if (&entry->gate_ == this && entry->inside_) return true;
  }
  return false;
}

void HandlerGate::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

bool HandlerGate::AwaitEmpty(transport::Environment& environment, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  return environment.Await(
      mutex_, left_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return inside_ == 0; }, deadline);
}

}  // namespace hawser::internal
