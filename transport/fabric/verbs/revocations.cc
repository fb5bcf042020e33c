#include "hawser/transport/fabric/verbs/revocations.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"

namespace hawser::fabric {

void VerbsRevocations::Revoke(uint32_t rkey, uint64_t wr_id) {
  // In error there is nothing to revoke any more, see ReleaseAll().
  if (endpoint_.state() == VerbsEndpoint::State::kError || endpoint_.device().in_forked_child()) {
    return Flush(wr_id);
  }
  if (ibv_mr* const mr = sends_.grants().TakeRegistration(rkey); mr != nullptr) {
    ++revoking_;
    const bool is_first = endpoint_.device_qp().Revoke({mr, wr_id});
    // The control thread is behind. A poller that grants faster than that deregisters does so itself, or
    // grants would run out. It does not wait for a command that is under way.
    if (revoking_ > sends_.depth() && endpoint_.device_qp().TryRevokeAll()) return TakeRevoked();
    if (!is_first) return;  // The command that was given takes it along.
    return endpoint_.HandOver(
        [](VerbsDeviceQp& qp) {
          qp.RevokeAll();
          return absl::OkStatus();
        },
        [this](const absl::Status&) { TakeRevoked(); });
  }
  if (!sends_.grants().Revoke(rkey, wr_id)) return endpoint_.ScheduleOnce();
  if (sends_.waits()) endpoint_.ScheduleOnce();  // Perhaps for a BIND_MW that is not needed any more.
  endpoint_.Deliver({.wr_id = wr_id, .opcode = Opcode::kRevoke});
}

void VerbsRevocations::TakeRevoked() {
  for (const VerbsDeviceQp::Revocation& revocation : endpoint_.device_qp().TakeRevoked()) {
    --revoking_;
    sends_.grants().OnDeregistered();
    if (revocation.error == 0) {
      endpoint_.Deliver({.wr_id = revocation.wr_id, .opcode = Opcode::kRevoke});
      continue;
    }
    // Fail() ends the ibv_qp, so this peer loses its access. No other peer has the rkey.
    endpoint_.Fail(absl::InternalError(
        absl::StrCat("peer ", endpoint_.peer(),
                     ": revoke a grant: ibv_dereg_mr(): ", DescribeErrno(std::abs(revocation.error)))));
    Flush(revocation.wr_id);
  }
}

void VerbsRevocations::WaitForRoom() {
  TakeRevoked();
  if (revoking_ != 0) endpoint_.device_qp().RevokeAll();
  TakeRevoked();
}

void VerbsRevocations::FlushQueued() {
  std::vector<uint64_t> queued;
  sends_.grants().DropQueued(queued);
  for (uint64_t wr_id : queued) Flush(wr_id);
}

void VerbsRevocations::ReleaseAll() {
  VerbsGrants::Leftover grants = sends_.grants().TakeAll();
  releases_some_ = grants.gives_access();
  endpoint_.device_qp().Release(std::move(grants));
}

void VerbsRevocations::OnReleased(bool all) {
  releasing_ = false;
  unreleased_ = !all;
  if (!all) return;
  releases_some_ = false;
  DeliverAll();
}

void VerbsRevocations::OnDestroyed() {
  releasing_ = releases_some_ = unreleased_ = false;
  DeliverAll();
}

// Until the control thread has moved the ibv_qp to error and has released the grants, the peer may have
// access, and the memory cannot be deregistered.
void VerbsRevocations::Flush(uint64_t wr_id) {
  if (releasing_ || unreleased_) return wr_ids_.push_back(wr_id);
  endpoint_.DeliverFlushed(wr_id, Opcode::kRevoke);
}

void VerbsRevocations::DeliverAll() {
  for (uint64_t wr_id : std::exchange(wr_ids_, {})) endpoint_.DeliverFlushed(wr_id, Opcode::kRevoke);
}

}  // namespace hawser::fabric
