#include "hawser/transport/fabric/verbs/grants.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {

namespace {

// The most that every device can bind: mlx5 refuses more (set_bind_wr()), which would end the connection.
constexpr uint32_t kWindowBytesMax = uint32_t{1} << 31;

// What a grant of `access` allows its peer.
unsigned int FlagsOf(QueuePair::Access access) {
  unsigned int flags = 0;
  if (Allows(access, QueuePair::Access::kRead)) flags |= IBV_ACCESS_REMOTE_READ;
  if (Allows(access, QueuePair::Access::kWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (Allows(access, QueuePair::Access::kAtomic)) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  return flags;
}

}  // namespace

VerbsGrants::VerbsGrants(VerbsDevice& device, const VerbsMemory& memory, GrantKind kind, uint32_t grants_max)
    : device_(device), memory_(memory), kind_(kind), grants_max_(grants_max) {}

absl::Status VerbsGrants::TooMany() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("grant memory to a peer: ", grants_max_, " grants are in use on this queue pair"));
}

absl::StatusOr<uint32_t> VerbsGrants::Grant(const Sge& range, QueuePair::Access access) {
  const unsigned int flags = FlagsOf(access);
  const ibv_mr* const region = memory_.mr(range);
  if (region == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("grant memory to a peer: RDMA device ", device_.name(), " has failed or was removed"));
  }
  // Revoke() does not know this key, and has nothing to do.
  if (kind_ == GrantKind::kShared && flags == IBV_ACCESS_REMOTE_READ) return region->rkey;
  if (kind_ != GrantKind::kWindows) return GrantByRegistration(range, static_cast<int>(flags));
  if (range.length > kWindowBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("grant memory to a peer: ", range.length,
                                                   " bytes in one range, at most ", kWindowBytesMax,
                                                   " can be in a memory window; send it in parts"));
  }
  if (free_.empty()) {
    if (windows_.size() == grants_max_) return TooMany();
    absl::StatusOr<ibv_mw*> mw = device_.TakeWindow();
    if (!mw.ok()) return mw.status();
    const uint32_t index = static_cast<uint32_t>(windows_.size());
    windows_.push_back({.mw = *mw, .rkey = (*mw)->rkey});
    by_key_[Key((*mw)->rkey)] = index;
    free_.push_back(index);
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Window& window = windows_[index];
  window.state = State::kBindQueued;
  window.rkey = ibv_inc_rkey(window.rkey);
  if (window.rkey == 0) window.rkey = ibv_inc_rkey(window.rkey);
  window.mr = memory_.mr(range);
  window.range = range;
  window.access = flags;
  queue_.push_back(index);
  return window.rkey;
}

absl::StatusOr<uint32_t> VerbsGrants::GrantByRegistration(const Sge& range, int access) {
  if (registered_.size() + deregistering_ >= grants_max_) return TooMany();
  // REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE, too (ibv_reg_mr(3)).
  if (access != IBV_ACCESS_REMOTE_READ) access |= IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* mr;
  do {
    errno = 0;  // Some providers set none.
    mr = device_.verbs().ibv_reg_mr(device_.pd(), range.address, range.length, access);
    if (mr == nullptr) return RegistrationError("grant memory to a peer", range.length, errno);
    registered_[mr->rkey] = mr;
  } while (mr->rkey == 0);  // No grant has rkey 0. Keeps the region, so that the device does not reuse 0.
  return mr->rkey;
}

ibv_mr* VerbsGrants::TakeRegistration(uint32_t rkey) {
  const auto it = registered_.find(rkey);
  if (it == registered_.end()) return nullptr;
  ibv_mr* const mr = it->second;
  registered_.erase(it);
  ++deregistering_;
  return mr;
}

bool VerbsGrants::Revoke(uint32_t rkey, uint64_t wr_id) {
  const auto it = by_key_.find(Key(rkey));
  if (it == by_key_.end() || windows_[it->second].rkey != rkey) return true;
  const uint32_t index = it->second;
  Window& window = windows_[index];
  switch (window.state) {
    case State::kBindQueued:  // It was never bound, so no peer has had access.
      queue_.erase(std::find(queue_.begin(), queue_.end(), index));
      [[fallthrough]];
    case State::kEnded:
      window.state = State::kFree;
      free_.push_back(index);
      return true;
    case State::kBound:
      window.state = State::kInvalidateQueued;
      window.revocation_wr_id = wr_id;
      queue_.push_back(index);
      return false;
    default:
      return true;
  }
}

void VerbsGrants::Fill(size_t i, ibv_send_wr& request, VerbsSendRing::Entry& entry) const {
  const Window& window = windows_[queue_[i]];
  entry.window = queue_[i];
  if (window.state == State::kBindQueued) {
    entry.kind = VerbsSendRing::Kind::kBind;
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw.mw = window.mw;
    request.bind_mw.rkey = window.rkey;
    request.bind_mw.bind_info = {.mr = window.mr,
                                 .addr = reinterpret_cast<uint64_t>(window.range.address),
                                 .length = window.range.length,
                                 .mw_access_flags = window.access};
    return;
  }
  entry.kind = VerbsSendRing::Kind::kInvalidate;
  entry.wr_id = window.revocation_wr_id;
  entry.signaled = true;
  request.opcode = IBV_WR_LOCAL_INV;
  request.invalidate_rkey = window.rkey;
  request.send_flags = IBV_SEND_SIGNALED;
}

bool VerbsGrants::HasBindBehind(size_t count) const {
  return std::any_of(queue_.begin() + static_cast<ptrdiff_t>(count), queue_.end(),
                     [this](uint32_t index) { return windows_[index].state == State::kBindQueued; });
}

void VerbsGrants::OnPosted(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Window& window = windows_[queue_[i]];
    if (window.state == State::kBindQueued) {
      window.state = State::kBound;
      window.mw->rkey =
          window.rkey;  // Providers read the current key here. For a window of type 2 nothing else sets it.
    } else {
      window.state = State::kInvalidating;
    }
  }
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(count));
}

bool VerbsGrants::OnEnded(uint32_t rkey) {
  const auto it = by_key_.find(Key(rkey));
  if (it == by_key_.end()) return true;
  Window& window = windows_[it->second];
  if (window.rkey != rkey) return true;
  if (window.state == State::kBound) window.state = State::kEnded;
  return window.state != State::kInvalidateQueued && window.state != State::kInvalidating;
}

void VerbsGrants::OnInvalidated(uint32_t index, bool ok) {
  if (!ok) return;                       // It may still be bound. TakeAll() takes it.
  if (index >= windows_.size()) return;  // TakeAll() has taken it since.
  windows_[index].state = State::kFree;
  free_.push_back(index);
}

void VerbsGrants::DropQueued(std::vector<uint64_t>& revocations) {
  for (uint32_t index : queue_) {
    Window& window = windows_[index];
    if (window.state == State::kInvalidateQueued) {
      revocations.push_back(window.revocation_wr_id);
      window.state = State::kInvalidating;
    } else {
      window.state = State::kFree;
      free_.push_back(index);
    }
  }
  queue_.clear();
}

void VerbsGrants::Leftover::Add(Leftover more) {
  windows.insert(windows.end(), more.windows.begin(), more.windows.end());
  registrations.insert(registrations.end(), more.registrations.begin(), more.registrations.end());
  unbound.insert(unbound.end(), more.unbound.begin(), more.unbound.end());
}

VerbsGrants::Leftover VerbsGrants::TakeAll() {
  Leftover all;
  for (const Window& window : std::exchange(windows_, {})) {
    const bool unbound =
        window.state == State::kFree || window.state == State::kBindQueued || window.state == State::kEnded;
    (unbound ? all.unbound : all.windows).push_back(window.mw);
  }
  for (const auto& [rkey, mr] : std::exchange(registered_, {})) all.registrations.push_back(mr);
  free_.clear();
  queue_.clear();
  by_key_.clear();
  return all;
}

}  // namespace hawser::fabric
