#include "hawser/transport/fabric/verbs/device_qp.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {

VerbsDeviceQp::VerbsDeviceQp(VerbsCompletionQueue& completion_queue, const VerbsFabricOptions& fabric,
                             uint32_t token, uint32_t sends, uint32_t receives)
    : completion_queue_(completion_queue),
      device_(completion_queue.device()),
      wanted_inline_bytes_(fabric.inline_bytes),
      ack_timeout_(fabric.ack_timeout),
      token_(token),
      sends_(sends),
      receives_(receives) {}

absl::Status VerbsDeviceQp::Ended(absl::string_view what) const {
  if (!ended_.load(std::memory_order_acquire)) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat(what, ": the connection was given up"));
}

ibv_qp* VerbsDeviceQp::qp() const {
  MutexLock lock(mutex_);
  return qp_;
}

ibv_cq* VerbsDeviceQp::cq() const {
  MutexLock lock(mutex_);
  return cq_;
}

void VerbsDeviceQp::Release(VerbsGrants::Leftover grants) {
  MutexLock lock(notes_mutex_);
  to_release_.Add(std::move(grants));
}

bool VerbsDeviceQp::Revoke(const Revocation& revocation) {
  MutexLock lock(notes_mutex_);
  to_revoke_.push_back(revocation);
  return to_revoke_.size() == 1;
}

std::vector<VerbsDeviceQp::Revocation> VerbsDeviceQp::TakeRevoked() {
  MutexLock lock(notes_mutex_);
  return std::exchange(revoked_, {});
}

void VerbsDeviceQp::Report(Result result) {
  {
    MutexLock lock(notes_mutex_);
    results_.push_back(std::move(result));
  }
  completion_queue_.Notify(token_);
}

std::vector<VerbsDeviceQp::Result> VerbsDeviceQp::TakeResults() {
  MutexLock lock(notes_mutex_);
  return std::exchange(results_, {});
}

void VerbsDeviceQp::OnAsyncEvent(ibv_event_type event) {
  async_events_.fetch_or(1u << event, std::memory_order_acq_rel);
  completion_queue_.Notify(token_);
}

// --- The rdma_cm_id

absl::Status VerbsDeviceQp::TakeOver(rdma_cm_id* id, std::shared_ptr<VerbsEventChannel> from,
                                     absl::string_view what) {
  if (absl::Status status = Ended(what); !status.ok()) {
    came_from_ = std::move(from);
    return status;
  }
  rdma_event_channel* const here = completion_queue_.channel()->get();
  // After this no other thread holds an event of the id (rdma_migrate_id(3)).
  if (id->channel != here && verbs().rdma_migrate_id(id, here) != 0) {
    const int error = errno;
    came_from_ = std::move(from);
    return ConnectCallError(what, "rdma_migrate_id()", error);
  }
  SetContext(*id, VerbsCompletionQueue::CmContext(token_));
  return absl::OkStatus();
}

// Called before the id does anything else. Ignores errors: if the kernel or the device (iWARP) does not have
// this option, its own value applies.
void VerbsDeviceQp::SetAckTimeout(rdma_cm_id* id) {
  uint8_t timeout = ack_timeout_;
  verbs().rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
}

void VerbsDeviceQp::DestroyId(rdma_cm_id* id) {
  verbs().rdma_destroy_id(id);
  came_from_ = nullptr;
}

}  // namespace hawser::fabric
