#include "hawser/rpc/shared_memory.h"

#include <utility>

#include "hawser/base/check.h"
#include "hawser/rpc/wire/misplaced_wait.h"
#include "hawser/transport/lane/lent_memory.h"
#include "hawser/transport/poller/poller.h"

namespace hawser {

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  End();
  memory_ = std::move(other.memory_);
  return *this;
}

SharedMemory::~SharedMemory() { End(); }

void SharedMemory::End() {
  if (memory_ == nullptr) return;
  if (memory_->in_child()) {
    // The lanes are the parent's: leaked.
    new std::shared_ptr<transport::LentMemory>(std::move(memory_));
    return;
  }
  memory_->Revoke();
  if (memory_->is_mapped()) return;
  HAWSER_CHECK(
      !transport::Poller::ThisThreadHoldsOne(),
      "a SharedMemory of the program's own memory was destroyed in a handler or a callback, where it "
      "would wait for itself");
  memory_->AwaitUnreachable();
}

uint8_t* SharedMemory::data() const { return memory_ == nullptr ? nullptr : memory_->address(); }

size_t SharedMemory::size_bytes() const { return memory_ == nullptr ? 0 : memory_->size_bytes(); }

absl::Status SharedMemory::Revoke() {
  if (memory_ == nullptr) return absl::FailedPreconditionError("the SharedMemory was moved from");
  if (memory_->in_child()) {
    return absl::FailedPreconditionError(
        "this process is a child made by fork() after the memory was shared");
  }
  if (transport::Poller::ThisThreadHoldsOne()) {
    return internal::MisplacedWait("SharedMemory::Revoke()",
                                   ", where it would wait for itself; let another thread call it");
  }
  memory_->Revoke();
  memory_->AwaitUnreachable();
  return absl::OkStatus();
}

}  // namespace hawser
