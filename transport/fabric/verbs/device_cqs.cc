#include "hawser/transport/fabric/verbs/device_cqs.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs/errors.h"
#include "hawser/transport/fabric/verbs/order.h"
#include "hawser/transport/fabric/verbs/rings.h"
#include "hawser/transport/fabric/verbs/suitability.h"

namespace hawser::fabric {
namespace {

constexpr int kBatch = 32;  // Completions of one call of ibv_poll_cq(), while they are stashed.

// Acknowledging takes a mutex of the library (ibv_ack_cq_events(3)), so it is done for many at once.
constexpr uint32_t kAcknowledgeBatch = 64;

}  // namespace

VerbsDeviceCqs::VerbsDeviceCqs(VerbsDevice& device, uint32_t depth, AsyncEventHandler& handler)
    : device_(device),
      handler_(handler),
      number_(device.TakeNumber()),
      depth_(std::clamp<uint32_t>(depth, 1, static_cast<uint32_t>(device.attr().max_cqe))) {}

absl::Status VerbsDeviceCqs::Open() {
  ibv_comp_channel* const channel = device_.verbs().ibv_create_comp_channel(device_.context());
  if (channel == nullptr) return CompletionQueueError("ibv_create_comp_channel()", errno);
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  MutexLock lock(mutex_);
  channel_ = channel;
  return absl::OkStatus();
}

void VerbsDeviceCqs::Close() {
  MutexLock lock(mutex_);
  for (const auto& cq : cqs_) {
    if (cq->unacknowledged > 0) device_.verbs().ibv_ack_cq_events(cq->cq, cq->unacknowledged);
    device_.verbs().ibv_destroy_cq(cq->cq);
  }
  cqs_.clear();
  if (channel_ != nullptr) device_.verbs().ibv_destroy_comp_channel(std::exchange(channel_, nullptr));
}

int VerbsDeviceCqs::event_fd() {
  MutexLock lock(mutex_);
  return channel_ != nullptr ? channel_->fd : -1;
}

// --- The ibv_cqs

absl::StatusOr<ibv_cq*> VerbsDeviceCqs::Reserve(uint32_t entries) {
  ibv_comp_channel* channel;
  size_t index;  // The place of a further ibv_cq. Never do two threads add one at once.
  {
    MutexLock lock(mutex_);
    for (const auto& cq : cqs_) {
      if (cq->reserved + entries > cq->capacity) continue;
      cq->reserved += entries;
      return cq->cq;
    }
    channel = channel_;
    index = cqs_.size();
  }
  // Without the lock, which would hold Poll(). The channel is there as long as a source is inside.
  const uint32_t max = static_cast<uint32_t>(device_.attr().max_cqe);
  if (entries > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("create a queue pair: ", entries,
                     " work requests can be outstanding on it, but a completion queue of ", device_.name(),
                     " has at most ", max, " entries"));
  }
  auto cq = std::make_unique<Cq>();
  // On a software device the largest at once: its rings pin nothing. Small ones would soon bring libsiw to
  // the object whose mapping begins at page 144, which it takes for an error (SIW_INVAL_UOBJ_KEY, 0x90000).
  if (IsSoftware(device_.attr(), device_.iwarp())) index = rings::kLargest;
  const uint32_t wanted = std::max(entries, std::min(rings::CompletionQueueEntries(depth_, index), max));
  const int vectors = std::max(device_.context()->num_comp_vectors, 1);
  errno = 0;
  cq->cq = device_.verbs().ibv_create_cq(device_.context(), static_cast<int>(wanted), &handler_, channel,
                                         static_cast<int>(number_ % static_cast<uint32_t>(vectors)));
  if (cq->cq == nullptr)
    return CompletionQueueError(absl::StrCat("ibv_create_cq() with ", wanted, " entries"), errno);
  cq->capacity = std::max(wanted, static_cast<uint32_t>(cq->cq->cqe));
  cq->reserved = entries;
  MutexLock lock(mutex_);
  cqs_.push_back(std::move(cq));
  return cqs_.back()->cq;
}

void VerbsDeviceCqs::Release(ibv_cq* released, uint32_t entries) {
  MutexLock lock(mutex_);
  for (const auto& cq : cqs_) {
    if (cq->cq == released) cq->reserved -= std::min(entries, cq->reserved);
  }
}

void VerbsDeviceCqs::Retire() {
  MutexLock lock(mutex_);
  for (const auto& cq : cqs_) cq->capacity = 0;
}

// --- Their completions

int VerbsDeviceCqs::Take(ibv_wc* out, int max) {
  MutexLock lock(mutex_);
  if (stash_taken_ < stash_.size()) {
    const size_t count = std::min<size_t>(static_cast<size_t>(max), stash_.size() - stash_taken_);
    std::copy_n(stash_.begin() + static_cast<ptrdiff_t>(stash_taken_), count, out);
    stash_taken_ += count;
    taken_total_ += count;
    return static_cast<int>(count);
  }
  int count = 0;
  for (size_t i = 0; i < cqs_.size() && count < max; ++i) {
    next_ = next_ + 1 < cqs_.size() ? next_ + 1 : 0;
    if (cqs_[next_]->destructions != 0) [[unlikely]]
      continue;
    const int taken = ibv_poll_cq(cqs_[next_]->cq, max - count, out + count);
    if (taken > 0) count += taken;  // Less than 0: the device is gone, and its event reports that.
  }
  if (count > 0) AfterPoll();
  return count;
}

// A completion that arrived before arming makes no event, so this polls again after arming.
bool VerbsDeviceCqs::ArmAndCheck() {
  MutexLock lock(mutex_);
  if (stash_taken_ < stash_.size()) return true;
  bool found = false;
  for (const auto& cq : cqs_) {
    if (cq->armed || cq->destructions != 0) continue;
    cq->armed = ibv_req_notify_cq(cq->cq, /*solicited_only=*/0) == 0;
    if (!PollIntoStash(*cq)) continue;
    found = true;
    cq->armed = false;  // More may have arrived before arming. The next Wait() arms and polls again.
  }
  return found;
}

bool VerbsDeviceCqs::PollIntoStash(Cq& cq) {
  ibv_wc found[kBatch];
  const int count = ibv_poll_cq(cq.cq, kBatch, found);
  if (count <= 0) return false;
  AfterPoll();
  if (stash_taken_ >= stash_.size() - stash_taken_) {  // Bounds its size even if it is never empty.
    stash_.erase(stash_.begin(), stash_.begin() + static_cast<ptrdiff_t>(stash_taken_));
    stash_taken_ = 0;
  }
  stash_.insert(stash_.end(), found, found + count);
  return true;
}

// Reads one event. If there are more, the next Wait() returns at once. Trying to read one that is not there
// would cost a system call.
void VerbsDeviceCqs::ReadEvent() {
  MutexLock lock(mutex_);
  if (channel_ == nullptr) return;
  ibv_cq* of = nullptr;
  void* context = nullptr;
  if (device_.verbs().ibv_get_cq_event(channel_, &of, &context) != 0) return;
  for (const auto& cq : cqs_) {
    if (cq->cq != of) continue;
    cq->armed = false;
    if (++cq->unacknowledged < kAcknowledgeBatch) return;
    device_.verbs().ibv_ack_cq_events(of, std::exchange(cq->unacknowledged, 0));
    return;
  }
}

// --- The end of an ibv_qp

bool VerbsDeviceCqs::Collect(ibv_cq* of, uint32_t token) {
  MutexLock lock(mutex_);
  for (const auto& cq : cqs_) {
    if (cq->cq != of) continue;
    CollectFrom(*cq);
    if (cq->destructions == 0) return true;
    cq->collectors.push_back(token);
    return false;
  }
  return true;
}

void VerbsDeviceCqs::CollectFrom(Cq& cq) {
  while (cq.destructions == 0 && PollIntoStash(cq)) {
  }
}

void VerbsDeviceCqs::BeforeDestruction(ibv_cq* of, bool exclusive) {
  MutexLock lock(mutex_);
  for (const auto& cq : cqs_) {
    if (cq->cq != of) continue;
    CollectFrom(*cq);
    if (exclusive) ++cq->destructions;
  }
}

std::vector<uint32_t> VerbsDeviceCqs::AfterDestruction(ibv_cq* of, bool exclusive) {
  std::vector<uint32_t> collectors;
  MutexLock lock(mutex_);
  for (const auto& cq : cqs_) {
    if (cq->cq != of) continue;
    if (exclusive && --cq->destructions == 0) collectors = std::exchange(cq->collectors, {});
    CollectFrom(*cq);
  }
  return collectors;
}

uint64_t VerbsDeviceCqs::CollectedMark() {
  MutexLock lock(mutex_);
  return taken_total_ + stash_.size() - stash_taken_;
}

bool VerbsDeviceCqs::Delivered(uint64_t mark) {
  MutexLock lock(mutex_);
  return taken_total_ >= mark;
}

}  // namespace hawser::fabric
