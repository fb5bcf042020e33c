#include "hawser/transport/lane/lent_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::transport {
namespace {

absl::Status Revoked() {
  return absl::FailedPreconditionError("the owner has revoked the memory, and no client reaches it any more");
}

}  // namespace

absl::StatusOr<std::shared_ptr<LentMemory>> LentMemory::Map(const Name& name, size_t size_bytes,
                                                            Environment& environment) {
  void* const mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", size_bytes, " bytes to share failed: ", strerror(errno)));
  }
  madvise(mapped, size_bytes, MADV_HUGEPAGE);  // Only advice: without it the pages are small.
  auto memory = std::make_shared<LentMemory>(name, static_cast<uint8_t*>(mapped), size_bytes, environment);
  memory->mapped_ = true;
  return memory;
}

LentMemory::LentMemory(const Name& name, uint8_t* address, size_t size_bytes, Environment& environment)
    : name_(name), address_(address), size_bytes_(size_bytes), environment_(environment) {}

LentMemory::~LentMemory() {
  {
    absl::MutexLock lock(&mutex_);
    registrations_.clear();  // Until here a device may use the pages.
  }
  if (mapped_) munmap(address_, size_bytes_);
}

bool LentMemory::revoked() const {
  absl::MutexLock lock(&mutex_);
  return revoked_;
}

size_t LentMemory::lane_count() const {
  absl::MutexLock lock(&mutex_);
  return lanes_.size();
}

absl::Status LentMemory::RegisterWith(const std::shared_ptr<Runtime>& runtime) {
  absl::MutexLock lock(&mutex_);
  if (revoked_) return Revoked();
  for (const Registration& each : registrations_) {
    if (each.runtime == runtime) return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> region =
      runtime->fabric().Register(address_, size_bytes_);
  if (!region.ok()) return region.status();
  registrations_.push_back({runtime, *std::move(region)});
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> LentMemory::Enter(const std::shared_ptr<LendingLane>& lane) {
  absl::MutexLock lock(&mutex_);
  if (revoked_) return Revoked();
  for (const Registration& each : registrations_) {
    if (each.runtime != lane->runtime) continue;
    ++lanes_[lane];
    return each.region->lkey();
  }
  return absl::FailedPreconditionError("the memory is not registered with the fabric of this lane");
}

void LentMemory::Leave(const std::shared_ptr<LendingLane>& lane) {
  absl::MutexLock lock(&mutex_);
  const auto found = lanes_.find(lane);
  if (found == lanes_.end() || --found->second > 0) return;
  lanes_.erase(found);
  if (lanes_.empty()) left_.SignalAll();
}

void LentMemory::Revoke() {
  std::vector<std::shared_ptr<LendingLane>> lanes;
  bool is_first;
  {
    absl::MutexLock lock(&mutex_);
    is_first = !std::exchange(revoked_, true);
    for (const auto& [lane, grants] : lanes_) lanes.push_back(lane);
  }
  if (is_first && on_revoked_) on_revoked_();
  for (const std::shared_ptr<LendingLane>& lane : lanes) {
    lane->poller.Run([lane, self = shared_from_this()] {
      if (lane->lender != nullptr) lane->lender->Revoke(*self);
    });
  }
}

void LentMemory::AwaitUnreachable() {
  std::vector<Registration> ended;  // Destroyed without the lock.
  absl::MutexLock lock(&mutex_);
  environment_.Await(
      mutex_, left_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return lanes_.empty(); },
      absl::InfiniteFuture());
  ended.swap(registrations_);
}

}  // namespace hawser::transport
