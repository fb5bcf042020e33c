#include "hawser/transport/fabric/verbs/queue_pair.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/verbs/errors.h"
#include "hawser/transport/fabric/verbs/rings.h"

namespace hawser::fabric {

VerbsQueuePair::VerbsQueuePair(VerbsCompletionQueue& completion_queue, const VerbsMemory& memory,
                               const VerbsFabricOptions& fabric, const QueuePairOptions& options,
                               GrantKind grants, uint32_t number, ConnectionHandler& handler)
    : VerbsEndpoint(completion_queue, fabric, number, options.read_depth,
                    rings::SendEntries(options.send_depth, grants == GrantKind::kWindows),
                    options.receive_depth),
      memory_(memory),
      handler_(handler),
      sends_(*this, memory, fabric, options.send_depth, grants),
      receives_(*this, memory, options.receive_depth),
      revocations_(*this, sends_),
      handshake_(*this, fabric, options.local_address) {}

VerbsQueuePair::~VerbsQueuePair() {
  completion_queue().Unregister(token());
  if (device().in_forked_child() || !entered()) return;
  device_qp().End();
  VerbsGrants::Leftover grants = sends_.grants().TakeAll();
  const bool idle = receives_.empty() && sends_.empty() && !grants.gives_access() && revocations_.idle() &&
                    !sends_.sinks().refused();
  device_qp().Release(std::move(grants));
  if (!idle) device_qp().Destroy();
  VerbsGrants::Leftover refused;
  refused.registrations = sends_.sinks().TakeAll();  // The last command tries these again.
  device_qp().Release(std::move(refused));
  HandOver(
      [id = handshake_.TakeId(), &completion_queue = completion_queue()](VerbsDeviceQp& qp) {
        qp.Destroy();
        if (id != nullptr) qp.DestroyId(id);
        completion_queue.LeaveSoon();
        return absl::OkStatus();
      },
      nullptr);
}

// --- The beginning

absl::Status VerbsQueuePair::Connect(const SocketAddress& address, absl::string_view private_data) {
  return handshake_.Connect(address, private_data);
}

absl::Status VerbsQueuePair::Accept(ConnectRequest& request, absl::string_view private_data) {
  return handshake_.Accept(request, private_data);
}

void VerbsQueuePair::OnCmEvent(VerbsCmEvent& event) {
  // Ignores late events. A queue pair in error still handles them, because its event may explain the error.
  if (disconnected() || ended_ || state() == State::kIdle) return;
  TakeResults();  // Those of commands that the event follows from.
  handshake_.OnCmEvent(event);
}

// Posts receives before the handshake continues, so that the peer's first message finds one.
void VerbsQueuePair::OnCreated() {
  sends_.SetInlineBytes(device_qp().inline_bytes());
  receives_.PostPending(qp(), sends_.chain_sges());
  if (state() == State::kError) return RejectPeer(error());
  handshake_.Continue();
  if (sends_.grants().sends_max() > 0) FillWindowStock();  // Before the first grant needs one.
}

void VerbsQueuePair::OnEstablished(std::string private_data) {
  news_.OnEstablished(std::move(private_data));
  ScheduleOnce();
}

// Has the control thread allocate windows, if few are left.
void VerbsQueuePair::FillWindowStock() {
  if (!device().windows().RunsLow()) return;
  HandOver(
      [&device = device()](VerbsDeviceQp&) {
        device.windows().Fill(device.pd());
        return absl::OkStatus();
      },
      nullptr);
}

// --- Posting

bool VerbsQueuePair::CanSend() const {
  return (state() == State::kEstablished || state() == State::kAccepting) && !device().in_forked_child();
}

absl::Status VerbsQueuePair::PostSend(absl::Span<const SendWorkRequest> requests) {
  if (!CanSend()) return NotUsable("PostSend");
  return sends_.Post(qp(), requests);
}

bool VerbsQueuePair::PostInline(absl::Span<const uint8_t> message) {
  return CanSend() && sends_.PostInline(message);
}

void VerbsQueuePair::RingDoorbell() {
  if (CanSend()) sends_.RingDoorbell(qp());
}

absl::Status VerbsQueuePair::PostReceive(absl::Span<const ReceiveWorkRequest> requests) {
  if (state() == State::kError || device().in_forked_child()) return NotUsable("PostReceive");
  return receives_.Post(qp(), requests, sends_.chain_sges());
}

absl::StatusOr<Granted> VerbsQueuePair::Grant(const Sge& range, Access access) {
  if (!memory_.Contains(range)) return memory_.Refusal(range);
  if (absl::Status status = CheckGrant(range, access, device().atomics()); !status.ok()) return status;
  // An idle queue pair does not keep the device open.
  if (state() == State::kIdle || state() == State::kError || device().in_forked_child())
    return NotUsable("Grant");
  absl::StatusOr<uint32_t> rkey = sends_.grants().Grant(range, access);
  if (!rkey.ok() && revocations_.revoking()) {
    revocations_.WaitForRoom();
    if (state() == State::kError) return NotUsable("Grant");
    rkey = sends_.grants().Grant(range, access);
  }
  if (!rkey.ok()) return rkey.status();
  if (sends_.grants().queued() > 0) {
    FillWindowStock();
    ScheduleOnce();
  }
  return Granted{reinterpret_cast<uint64_t>(range.address), *rkey};
}

void VerbsQueuePair::OpenSink(uint8_t* address, uint64_t length_bytes) {
  if (!sends_.sinks().enabled() || state() == State::kError || device().in_forked_child()) return;
  sends_.sinks().Open(address, length_bytes);
}

bool VerbsQueuePair::CloseSink(const uint8_t* address) {
  if (!sends_.sinks().enabled() || device().in_forked_child()) return true;
  const absl::Status closed = sends_.sinks().Close(address);
  if (!closed.ok()) {
    Fail(absl::Status(closed.code(), absl::StrCat("peer ", peer(), ": ", closed.message())));
  }
  return !sends_.sinks().refused();
}

// --- Completing

bool VerbsQueuePair::OnCompletion(const ibv_wc& wc, bool receive, uint32_t number, Completion& out) {
  if (!receive) return sends_.OnCompletion(wc, number, out);
  if (!receives_.Outstanding(number)) return false;  // FlushOutstanding() has completed it.
  out = {.wr_id = receives_.Retire(number),
         .qp_num = current_qp_num(),
         .status = ToCompletionStatus(wc.status),
         .opcode = Opcode::kReceive,
         .byte_len = wc.status == IBV_WC_SUCCESS ? wc.byte_len : 0};  // Else undefined: ibv_poll_cq(3).
  if (wc.status != IBV_WC_SUCCESS) {
    if (state() != State::kError) OnFailedRequest();
    return true;
  }
  if (state() == State::kAnswering) [[unlikely]]
    handshake_.OnAnswerArrived();
  if ((wc.wc_flags & IBV_WC_WITH_INV) != 0 && !sends_.grants().OnEnded(wc.invalidated_rkey)) [[unlikely]] {
    Fail(ViolationError(
        Violation::kMemoryAccess,
        absl::StrCat("peer ", peer(), ": it ended a grant that this side was revoking already")));
  }
  return true;
}

void VerbsQueuePair::OnTurn() {
  OnScheduledTurn();
  TakeResults();
  const uint32_t events = device_qp().TakeAsyncEvents();
  if (events != 0) OnAsyncEvents(events);
  if (flushes_) {
    if (!completion_queue().Delivered(collected_)) return ScheduleOnce();  // Some may be for this queue pair.
    flushes_ = false;
    return FlushOutstanding();
  }
  sends_.PostQueued(qp());
  if (news_.empty()) return;
  if (news_.ended() && !collected_all_) CollectBeforeTheEnd();
  if (news_.is_disconnection()) {
    // Completions from before the end come first.
    if (!collected_all_) return;  // This is called again when they can be collected.
    if (!completion_queue().Delivered(collected_)) return ScheduleOnce();
  }
  news_.Notify(*this, handler_);
}

// `events`: bits, by ibv_event_type.
void VerbsQueuePair::OnAsyncEvents(uint32_t events) {
  if ((events & 1u << IBV_EVENT_COMM_EST) != 0) handshake_.OnPeerSpoke();
  for (ibv_event_type fatal : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    if ((events & 1u << fatal) == 0) continue;
    absl::Status why =
        fatal == IBV_EVENT_QP_FATAL
            ? absl::UnavailableError(absl::StrCat("peer ", peer(), ": ", DescribeAsyncEvent(fatal),
                                                  ": the device gave up this queue pair"))
            : ViolationError(Violation::kMemoryAccess,
                             absl::StrCat("peer ", peer(), ": ", DescribeAsyncEvent(fatal),
                                          ": it asked for what it was not granted"));
    AwaitsAnswer() ? FailHandshake(why) : Fail(std::move(why));
  }
}

// --- Ending

void VerbsQueuePair::Fail(absl::Status why, absl::string_view private_data) {
  if (!disconnected() && !std::exchange(ended_, true)) {
    handshake_.was_established() ? news_.OnEnded(why) : news_.OnConnectFailed(why, private_data);
    // Poll() returns the completions from before the end first, then notifies the handler, then returns what
    // the end flushes.
    CollectBeforeTheEnd();
    ScheduleOnce();
  }
  // In kError already, a completion that was only flushed has moved it there.
  if (error().ok()) SetError(std::move(why));
  if (state() != State::kError) EnterError();
}

void VerbsQueuePair::CollectBeforeTheEnd() {
  collected_all_ = completion_queue().Collect(cq(), token());
  collected_ = completion_queue().CollectedMark();
}

// The completion of the work request does not say why to a peer that waits for an answer.
void VerbsQueuePair::OnFailedRequest() {
  if (!AwaitsAnswer()) return EnterError();
  FailHandshake(absl::UnavailableError(absl::StrCat(
      handshake_.Accepting(), ": the device ended the queue pair before the peer had its answer")));
}

void VerbsQueuePair::FailHandshake(const absl::Status& why) {
  RejectPeer(why);
  Fail(why);
}

// At the side that accepts: a peer that has no answer yet gets this one.
void VerbsQueuePair::RejectPeer(const absl::Status& why) {
  if (handshake_.MayReject()) handshake_.Reject(handler_.OnAcceptFailed(why));
}

void VerbsQueuePair::EnterError() {
  const bool begins = entered() && state() != State::kError;
  Move(Event::kEnd);
  if (begins) revocations_.OnEnding();
  receives_.FlushPending();
  revocations_.FlushQueued();
  if (!begins) return;
  device_qp().End();
  revocations_.ReleaseAll();
  sends_.sinks().CloseAll();
  HandOver([move = !lost_](VerbsDeviceQp& qp) { return qp.EnterError(move); },
           [this](const absl::Status& released) { OnErrorEntered(released); });
}

void VerbsQueuePair::OnErrorEntered(const absl::Status& released) {
  revocations_.OnReleased(released.ok());
  if (!disconnected()) return;
  released.ok() ? PostDrain() : Abandon();
}

void VerbsQueuePair::Disconnect() {
  if (disconnected()) return;
  SetDisconnected();
  news_.Clear();
  if (device().in_forked_child()) return Move(Event::kEnd);
  if (lost_ || device().gone()) {
    lost_ = true;
    EnterError();
    return Abandon();
  }
  handshake_.Disconnect();
  EnterError();
  // Work requests posted to an iWARP queue pair in error may never complete, including those posted just
  // before this side detected the error.
  if (device().iwarp() || revocations_.unreleased()) return Abandon();
  if (!revocations_.releasing()) PostDrain();  // Else when it is in error.
}

// Keeps the ibv_qp until it has flushed.
void VerbsQueuePair::PostDrain() {
  if (!sends_.PostDrain(qp())) Abandon();
}

void VerbsQueuePair::OnLost(const absl::Status& why) {
  if (lost_) return;
  lost_ = true;
  if (disconnected()) return Abandon();
  Fail(absl::Status(why.code(), absl::StrCat("peer ", peer(), ": ", why.message())));
}

bool VerbsQueuePair::ForceFlush() {
  if (device().in_forked_child()) return false;
  Abandon();
  return true;
}

// Called when no flush is expected. Has the ibv_qp destroyed: after that the device does not touch its memory
// any more.
void VerbsQueuePair::Abandon() {
  if (!entered() || std::exchange(abandoned_, true)) return;
  DropQp();
  HandOver(
      [](VerbsDeviceQp& qp) {
        qp.Destroy();
        return absl::OkStatus();
      },
      [this](const absl::Status&) { OnDestroyed(); });
}

void VerbsQueuePair::OnDestroyed() {
  collected_ = completion_queue().CollectedMark();
  flushes_ = true;
  ScheduleOnce();
}

// Completes what the device will not complete any more.
void VerbsQueuePair::FlushOutstanding() {
  sends_.sinks().Release();
  revocations_.OnDestroyed();
  receives_.FlushOutstanding();
  sends_.FlushOutstanding();
}

}  // namespace hawser::fabric
