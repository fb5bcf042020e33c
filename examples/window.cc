#include "examples/window.h"

namespace examples {

void Window::Enter(uint64_t size_bytes) {
  const auto fits = [this, size_bytes]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return calls_ == 0 || (calls_ < calls_max_ && bytes_ + size_bytes <= bytes_max_);
  };
  absl::MutexLock lock(&mutex_, absl::Condition(&fits));
  ++calls_;
  bytes_ += size_bytes;
}

void Window::Leave(uint64_t size_bytes) {
  absl::MutexLock lock(&mutex_);
  --calls_;
  bytes_ -= size_bytes;
}

void Window::WaitUntilEmpty() {
  const auto empty = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_ == 0; };
  absl::MutexLock lock(&mutex_, absl::Condition(&empty));
}

}  // namespace examples
