#include <algorithm>
#include <utility>

#include "hawser/tests/softroce/nic/nic_state.h"

namespace hawser::fabric {
namespace {

// ESTABLISHED waits for the first receive no longer: a client may be silent.
constexpr int64_t kEstablishedLateNs = 10 * kNsPerMs;

}  // namespace

void NicLibrary::State::SetTimer(CmChannel& channel) {
  int64_t next_ns = kNever;
  for (const auto& late : channel.late) next_ns = std::min(next_ns, late->due_ns);
  channel.timed.Set(next_ns);
}

rdma_cm_event* NicLibrary::State::TakeDue(CmChannel& channel) {
  const int64_t now = Now();
  const auto due = std::find_if(channel.late.begin(), channel.late.end(),
                                [&](const auto& late) { return late->due_ns <= now; });
  rdma_cm_event* event = nullptr;
  if (due != channel.late.end()) {
    event = &(*due)->event;
    returned[event] = std::move(*due);
    channel.late.erase(due);
  }
  SetTimer(channel);
  return event;
}

bool NicLibrary::State::Postpone(CmChannel& channel, const rdma_cm_event& event) {
  int64_t due_ns = 0;
  for (const auto& late : channel.late) {
    if (late->event.id == event.id) due_ns = late->due_ns = Now();
  }
  const auto dialog = dialogs.find(event.id);
  if (due_ns == 0 && event.event == RDMA_CM_EVENT_ESTABLISHED && dialog != dialogs.end() &&
      dialog->second.accepted) {
    const auto by = by_number.find(dialog->second.qp_num);
    if (by != by_number.end() && !by->second->heard) due_ns = Now() + kEstablishedLateNs;
  }
  if (due_ns == 0) return false;
  channel.late.push_back(std::make_unique<CmEvent>(event));
  channel.late.back()->due_ns = due_ns;
  SetTimer(channel);
  return true;
}

void NicLibrary::State::DropDepths(rdma_cm_event& event) {
  rdma_conn_param& conn = event.param.conn;
  const auto dialog = dialogs.find(event.id);
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    if (behavior.request_lacks_initiator_depth) conn.initiator_depth = 0;
    if (behavior.request_lacks_responder_resources) conn.responder_resources = 0;
  } else if (event.event == RDMA_CM_EVENT_CONNECT_RESPONSE ||
             (event.event == RDMA_CM_EVENT_ESTABLISHED && dialog != dialogs.end() &&
              !dialog->second.accepted)) {
    if (behavior.reply_lacks_depths) conn.initiator_depth = conn.responder_resources = 0;
  }
}

}  // namespace hawser::fabric
