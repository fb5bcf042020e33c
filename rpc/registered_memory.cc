#include "hawser/rpc/registered_memory.h"

#include <utility>

#include "hawser/base/check.h"
#include "hawser/rpc/wire/misplaced_wait.h"
#include "hawser/transport/memory/user_regions.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"

namespace hawser {
namespace {

transport::UserRange RangeOf(const MemoryRange& range) {
  using Kind = transport::UserRange::Kind;
  transport::UserRange result;
  // One that there is not stays so, and is refused.
  result.kind = range.kind == MemoryKind::kHost       ? Kind::kHost
                : range.kind == MemoryKind::kDmabuf   ? Kind::kDmabuf
                : range.kind == MemoryKind::kOnDemand ? Kind::kOnDemand
                                                      : static_cast<Kind>(range.kind);
  result.cpu_visible = range.cpu_visible;
  result.address = range.address;
  result.length_bytes = range.length_bytes;
  result.dmabuf_fd = range.dmabuf.fd;
  result.dmabuf_offset = range.dmabuf.offset;
  return result;
}

}  // namespace

absl::StatusOr<RegisteredMemory> RegisteredMemory::Register(
    const std::shared_ptr<transport::Runtime>& runtime, const MemoryRange& range) {
  absl::StatusOr<transport::UserRegion*> region = runtime->user_regions().Register(RangeOf(range));
  if (!region.ok()) return region.status();
  return RegisteredMemory(runtime, *region, {range.address, range.length_bytes});
}

RegisteredMemory::RegisteredMemory(std::shared_ptr<transport::Runtime> runtime, transport::UserRegion* region,
                                   absl::Span<uint8_t> bytes)
    : runtime_(std::move(runtime)), region_(region), bytes_(bytes) {}

RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept
    : runtime_(std::move(other.runtime_)),
      region_(std::exchange(other.region_, nullptr)),
      bytes_(std::exchange(other.bytes_, {})) {}

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  if (this == &other) return *this;
  End();
  runtime_ = std::move(other.runtime_);
  region_ = std::exchange(other.region_, nullptr);
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

RegisteredMemory::~RegisteredMemory() { End(); }

bool RegisteredMemory::in_child() const { return !runtime_->poller(0).usable_in_this_process(); }

void RegisteredMemory::End() {
  if (region_ == nullptr) return;
  if (in_child()) {
    // The runtime is the parent's: leaked.
    new std::shared_ptr<transport::Runtime>(std::move(runtime_));
    region_ = nullptr;
    return;
  }
  // Also while nothing uses it: whether something does depends on how soon the peers answer.
  HAWSER_CHECK(!transport::Poller::ThisThreadHoldsOne(),
               "a RegisteredMemory was destroyed in a handler or a callback, where it would wait for itself: "
               "call Release() there");
  runtime_->user_regions().Release(region_, /*may_wait=*/true);
  region_ = nullptr;
}

absl::Status RegisteredMemory::Release() {
  if (region_ == nullptr) {
    return absl::FailedPreconditionError("the RegisteredMemory was released, or moved from");
  }
  if (in_child()) {
    return absl::FailedPreconditionError(
        "this process is a child made by fork() after the memory was registered");
  }
  if (!runtime_->user_regions().Release(region_, !transport::Poller::ThisThreadHoldsOne())) {
    return internal::MisplacedWait("RegisteredMemory::Release()",
                                   ", where it would wait for itself; let another thread call it");
  }
  region_ = nullptr;
  bytes_ = {};
  runtime_ = nullptr;
  return absl::OkStatus();
}

}  // namespace hawser
