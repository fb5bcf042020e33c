#include "hawser/transport/fabric/verbs/endpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/state_machine.h"
#include "hawser/base/violation.h"

namespace hawser::fabric {

VerbsEndpoint::VerbsEndpoint(VerbsCompletionQueue& completion_queue, const VerbsFabricOptions& fabric,
                             uint32_t number, uint32_t read_depth, uint64_t sends, uint32_t receives)
    : completion_queue_(completion_queue),
      device_(completion_queue.device()),
      token_(completion_queue.Register(*this)),
      number_((1u << 24) + number),
      qp_num_(number_),
      read_depth_(std::min(read_depth, device_.read_depth_max())),
      device_qp_(std::make_shared<VerbsDeviceQp>(completion_queue, fabric, token_,
                                                 static_cast<uint32_t>(sends), receives)) {}

void VerbsEndpoint::Move(Event event) {
  state_ = Moved<VerbsQueuePairState>(
      state_, event, [this] { return absl::StrCat("queue pair ", qp_num_, " to ", peer()); });
}

absl::Status VerbsEndpoint::NotUsable(absl::string_view call) const {
  if (absl::Status status = device_.CheckProcess(call); !status.ok()) return status;
  if (state_ != State::kError) {
    return absl::FailedPreconditionError(absl::StrCat(call, ": the queue pair is not connected yet"));
  }
  absl::Status why = absl::FailedPreconditionError(
      absl::StrCat(call, " to ", peer(), ": the queue pair is in error: ",
                   error_.ok() ? "Disconnect() was called, or a work request failed" : error_.message()));
  CopyViolation(error_, why);
  return why;
}

void VerbsEndpoint::TakeQp() {
  qp_ = device_qp_->qp();
  cq_ = device_qp_->cq();
  qp_num_ = qp_->qp_num;
}

void VerbsEndpoint::DropQp() {
  qp_num_ = number_;  // The device may soon reuse the number of the ibv_qp.
  qp_ = nullptr;
}

absl::Status VerbsEndpoint::Enter(absl::string_view what) {
  const absl::Status status = completion_queue_.Enter();
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
  entered_ = true;
  return status;
}

void VerbsEndpoint::Leave() {
  if (std::exchange(entered_, false)) completion_queue_.Leave();
}

void VerbsEndpoint::HandOver(absl::AnyInvocable<absl::Status(VerbsDeviceQp&)> command, Then then) {
  completion_queue_.RunCommand(
      connects_alone_ ? device_qp_.get() : nullptr,
      [qp = device_qp_, command = std::move(command), then = std::move(then)]() mutable {
        absl::Status result = command(*qp);
        if (then != nullptr) qp->Report({std::move(then), std::move(result)});
      });
}

void VerbsEndpoint::TakeResults() {
  for (auto& [then, result] : device_qp_->TakeResults()) then(result);
}

void VerbsEndpoint::ScheduleOnce() {
  if (std::exchange(scheduled_, true)) return;
  completion_queue_.Schedule(token_);
}

}  // namespace hawser::fabric
