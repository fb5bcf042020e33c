// How a VerbsQueuePair is connected, and how its connection ends.

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/state_machine.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/check_connect.h"
#include "hawser/transport/fabric/verbs/connect_request.h"
#include "hawser/transport/fabric/verbs/errors.h"
#include "hawser/transport/fabric/verbs/queue_pair.h"

namespace hawser::fabric {
namespace {

// The timeout of resolving, in which the kernel waits for a neighbour (ARP) or the subnet manager. Callers
// give up earlier.
constexpr int kResolveTimeoutMs = 30000;

// The connection manager pads with zeros, so data that is all zeros means that there was none.
absl::string_view WithoutPadding(absl::string_view private_data) {
  return private_data.find_first_not_of('\0') == absl::string_view::npos ? absl::string_view() : private_data;
}

}  // namespace

std::string VerbsQueuePair::ConnectingTo() const {
  return absl::StrCat("connect to ", peer_address_.ToString());
}

absl::Status VerbsQueuePair::Enter(absl::string_view what) {
  const absl::Status status = completion_queue_.Enter();
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
  entered_ = true;
  return status;
}

void VerbsQueuePair::Leave() {
  if (std::exchange(entered_, false)) completion_queue_.Leave();
}

void VerbsQueuePair::Move(Event event) {
  state_ = Moved<VerbsQueuePairState>(state_, event, [this] {
    return absl::StrCat("queue pair ", qp_num_, " to ", peer_address_.ToString());
  });
}

// --- The side that connects

absl::Status VerbsQueuePair::Connect(const SocketAddress& address, absl::string_view private_data) {
  const std::string what = absl::StrCat("connect to ", address.ToString());
  const SocketAddress& local = options_.local_address;
  const bool bound = local.family() != AF_UNSPEC;
  absl::Status allowed = CheckConnect(what, state_ == State::kIdle, local, address, private_data);
  if (!allowed.ok()) return allowed;
  if (absl::Status status = device_.CheckProcess(what); !status.ok()) return status;
  if (absl::Status status = Enter(what); !status.ok()) return status;
  if (verbs().rdma_create_id(completion_queue_.channel()->get(), &id_,
                             VerbsCompletionQueue::CmContext(token_), RDMA_PS_TCP) != 0) {
    const int error = errno;
    id_ = nullptr;
    Leave();  // Still idle: the caller may try again.
    return VerbsError(what, "rdma_create_id()", error,
                      error == EMFILE ? "raise the limit of open files" : "");
  }
  peer_address_ = address;
  connect_data_ = std::string(private_data);
  Move(Event::kConnect);
  SetAckTimeout();
  if (!SetTrafficClass()) return absl::OkStatus();
  SocketAddress peer = address, from = local;
  if (verbs().rdma_resolve_addr(id_, bound ? const_cast<sockaddr*>(from.get()) : nullptr,
                                const_cast<sockaddr*>(peer.get()), kResolveTimeoutMs) != 0) {
    const int error = errno;
    Fail(bound && (error == EADDRNOTAVAIL || error == ENODEV)
             ? absl::UnavailableError(absl::StrCat(
                   what, " from ", local.ToString(), ": rdma_resolve_addr(): ", DescribeErrno(error),
                   ": no interface of this machine that has an RDMA device has that address"))
             : ConnectCallError(what, "rdma_resolve_addr()", error));
  }
  return absl::OkStatus();
}

// Called before the id does anything else. Ignores errors: if the kernel or the device (iWARP) does not have
// this option, its own value applies.
void VerbsQueuePair::SetAckTimeout() {
  uint8_t timeout = fabric_.ack_timeout;
  verbs().rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
}

// Called before the route is resolved, because it is a part of the route. The side that accepts uses the
// traffic class of the request.
bool VerbsQueuePair::SetTrafficClass() {
  if (!fabric_.traffic_class.has_value()) return true;
  uint8_t traffic_class = *fabric_.traffic_class;
  if (verbs().rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class,
                              sizeof(traffic_class)) == 0) {
    return true;
  }
  Fail(ConnectCallError(ConnectingTo(), "rdma_set_option(RDMA_OPTION_ID_TOS)", errno));
  return false;
}

void VerbsQueuePair::OnCmEvent(VerbsCmEvent& event) {
  // Ignores late events. A queue pair in error still handles them, because its event may explain the error.
  if (disconnected_ || ended_ || state_ == State::kIdle) return;
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (event.status != 0)
        return Fail(ConnectError(ConnectingTo(), event.type, event.status, device_.iwarp()));
      return OnAddressResolved();
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (event.status != 0)
        return Fail(ConnectError(ConnectingTo(), event.type, event.status, device_.iwarp()));
      return OnRouteResolved();
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      if (event.status != 0)
        return Fail(ConnectError(ConnectingTo(), event.type, event.status, device_.iwarp()));
      return OnConnectResponse(event);
    case RDMA_CM_EVENT_ESTABLISHED:
      if (event.status != 0)
        return Fail(ConnectError(ConnectingTo(), event.type, event.status, device_.iwarp()));
      return Establish(event);
    case RDMA_CM_EVENT_REJECTED:
      if (!was_established_ && !accepted_) {
        absl::Status why = ConnectError(ConnectingTo(), event.type, event.status, device_.iwarp());
        const bool by_program = why.code() == absl::StatusCode::kPermissionDenied;
        return Fail(std::move(why), by_program ? WithoutPadding(event.private_data) : absl::string_view());
      }
      [[fallthrough]];
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_DISCONNECTED:
      if (was_established_) {
        absl::Status why = absl::UnavailableError(absl::StrCat("peer ", peer_address_.ToString(),
                                                               " disconnected, or its process ended (",
                                                               DescribeCmEvent(event.type), ")"));
        if (event.type == RDMA_CM_EVENT_DISCONNECTED) SetPeersEnd(why);
        return Fail(std::move(why));
      }
      if (accepted_) {
        return Fail(absl::UnavailableError(absl::StrCat("accept ", peer_address_.ToString(),
                                                        ": it went away before it heard of it (",
                                                        DescribeCmEvent(event.type), ")")));
      }
      return Fail(ConnectError(ConnectingTo(), event.type, event.status, device_.iwarp()));
    case RDMA_CM_EVENT_ADDR_CHANGE:
      // A bond has switched to another link. Packets would still use the old one until the retries are used
      // up.
      return Fail(absl::UnavailableError(
          absl::StrCat("peer ", peer_address_.ToString(),
                       ": the address that the connection was made from has moved to another link (",
                       DescribeCmEvent(event.type), ")")));
    default:
      return;  // DEVICE_REMOVAL: OnLost() is called soon. TIMEWAIT_EXIT: needs no answer.
  }
}

void VerbsQueuePair::OnAddressResolved() {
  if (state_ != State::kResolving) return;
  local_address_ = LocalAddress(*id_);
  if (!device_.Is(id_->verbs)) {
    return Fail(absl::UnavailableError(
        absl::StrCat(ConnectingTo(), ": the route leads over RDMA device ",
                     id_->verbs != nullptr ? id_->verbs->device->name : "(none)", ", but this program uses ",
                     device_.name(), " (RuntimeOptions::rdma_device, HAWSER_RDMA_DEVICE)")));
  }
  device_.Prove();
  completion_queue_.BindSentinel(local_address_);
  if (verbs().rdma_resolve_route(id_, kResolveTimeoutMs) != 0) {
    Fail(ConnectCallError(ConnectingTo(), "rdma_resolve_route()", errno));
  }
}

void VerbsQueuePair::OnRouteResolved() {
  if (state_ != State::kResolving) return;
  if (absl::Status status = CreateQp(ConnectingTo()); !status.ok()) return Fail(std::move(status));
  Move(Event::kResolved);
  rdma_conn_param parameters = ConnectionParameters(connect_data_, read_depth_);
  if (verbs().rdma_connect(id_, &parameters) != 0) {
    const int error = errno;
    // siw reports a closed port here. Other devices report it by an event.
    Fail(error == ECONNREFUSED
             ? absl::UnavailableError(absl::StrCat(ConnectingTo(),
                                                   ": rdma_connect(): connection refused (ECONNREFUSED)"
                                                   ": nothing listens there over RDMA"))
             : ConnectCallError(ConnectingTo(), "rdma_connect()", error));
  }
}

rdma_conn_param VerbsQueuePair::ConnectionParameters(absl::string_view private_data,
                                                     uint32_t read_depth) const {
  rdma_conn_param parameters = {};
  parameters.private_data = private_data.data();
  parameters.private_data_len = static_cast<uint8_t>(private_data.size());
  parameters.initiator_depth = static_cast<uint8_t>(read_depth);
  parameters.responder_resources = static_cast<uint8_t>(read_depth);
  parameters.retry_count = fabric_.retry_count;
  parameters.rnr_retry_count = fabric_.rnr_retry_count;
  parameters.qp_num = qp_->qp_num;
  return parameters;
}

// The peer has accepted. An iWARP device has no such event: it finishes by itself and reports ESTABLISHED.
void VerbsQueuePair::OnConnectResponse(const VerbsCmEvent& event) {
  if (state_ != State::kConnecting) return;
  AdoptEce();
  if (absl::Status status = MakeReadyToSend(ConnectingTo()); !status.ok()) return Fail(std::move(status));
  if (verbs().rdma_establish(id_) != 0) {
    return Fail(ConnectCallError(ConnectingTo(), "rdma_establish()", errno));
  }
  Establish(event);
}

void VerbsQueuePair::Establish(const VerbsCmEvent& event) {
  if (state_ != State::kConnecting && state_ != State::kAccepting) return;
  if (!accepted_) {
    // The peer has answered with the minimum of its own depths and those of this side.
    read_depth_ =
        std::min({read_depth_, uint32_t{event.initiator_depth}, uint32_t{event.responder_resources}});
  }
  Move(Event::kConnected);
  was_established_ = true;
  news().established = true;
  news().private_data = accepted_ ? std::string() : event.private_data;
  ScheduleOnce();
}

// --- The side that accepts

absl::Status VerbsQueuePair::Accept(ConnectRequest& request, absl::string_view private_data) {
  auto* const verbs_request = dynamic_cast<VerbsConnectRequest*>(&request);
  if (verbs_request == nullptr) return RequestOfAnotherFabric(request);
  VerbsConnectRequest& asked = *verbs_request;
  const std::string what = absl::StrCat("accept ", asked.peer_address().ToString());
  absl::Status allowed = CheckAccept(what, state_ == State::kIdle, private_data);
  if (!allowed.ok()) return allowed;
  if (absl::Status status = device_.CheckProcess(what); !status.ok()) return status;
  if (absl::Status status = Enter(what); !status.ok()) return status;
  const auto refuse = [&](absl::Status why) {
    Leave();
    return why;
  };
  const rdma_cm_id* const offered = asked.id();
  if (offered == nullptr)
    return refuse(absl::FailedPreconditionError(absl::StrCat(what, ": the request was rejected before")));
  if (!device_.Is(offered->verbs)) {
    // Short, so that the peer receives all of it.
    return refuse(absl::UnavailableError(
        absl::StrCat(what, ": it came over RDMA device ",
                     offered->verbs != nullptr ? offered->verbs->device->name : "(none)",
                     ", the server uses ", device_.name(), " (RuntimeOptions::rdma_device)")));
  }
  id_ = asked.TakeId();
  peer_address_ = asked.peer_address();
  local_address_ = LocalAddress(*id_);
  Move(Event::kAccept);
  accepted_ = true;
  // Before rdma_accept() the caller can still reject the request with a reason.
  const auto fail = [&](absl::Status why, bool rejected = false) {
    error_ = why;
    if (state_ != State::kError) EnterError();
    if (!rejected) {
      id_->context = nullptr;
      asked.GiveBack(std::exchange(id_, nullptr), completion_queue_.channel());
    }
    DropId();
    // The caller gets the error, so the handler is not called.
    ended_ = true;
    news_.reset();
    return why;
  };
  device_.Prove();
  completion_queue_.BindSentinel(local_address_);
  // After this no other thread holds an event of the id (rdma_migrate_id(3)).
  if (id_->channel != completion_queue_.channel()->get() &&
      verbs().rdma_migrate_id(id_, completion_queue_.channel()->get()) != 0) {
    return fail(ConnectCallError(what, "rdma_migrate_id()", errno));
  }
  id_->context = VerbsCompletionQueue::CmContext(token_);
  read_depth_ =
      std::min({read_depth_, uint32_t{asked.initiator_depth()}, uint32_t{asked.responder_resources()}});
  SetAckTimeout();
  if (absl::Status status = CreateQp(what); !status.ok()) return fail(std::move(status));
  rdma_conn_param parameters = ConnectionParameters(private_data, read_depth_);
  if (absl::Status status = MakeReadyToSend(what, parameters.initiator_depth); !status.ok()) {
    return fail(std::move(status));
  }
  if (verbs().rdma_accept(id_, &parameters) != 0) {
    return fail(ConnectCallError(what, "rdma_accept()", errno), /*rejected=*/true);
  }
  return absl::OkStatus();
}

// --- Ending

VerbsQueuePair::News& VerbsQueuePair::news() {
  if (news_ == nullptr) news_ = std::make_unique<News>();
  return *news_;
}

void VerbsQueuePair::OnTurn() {
  scheduled_ = false;
  const uint32_t events = async_events_.exchange(0, std::memory_order_acq_rel);
  if ((events & 1u << IBV_EVENT_COMM_EST) != 0 && state_ == State::kAccepting) {
    // The peer sends data, but its last handshake message was lost. Tells the connection manager that the
    // connection is established.
    verbs().rdma_notify(id_, IBV_EVENT_COMM_EST);
  }
  for (ibv_event_type fatal : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    if ((events & 1u << fatal) == 0) continue;
    Fail(fatal == IBV_EVENT_QP_FATAL
             ? absl::UnavailableError(absl::StrCat("peer ", peer_address_.ToString(), ": ",
                                                   DescribeAsyncEvent(fatal),
                                                   ": the device gave up this queue pair"))
             : ViolationError(Violation::kMemoryAccess,
                              absl::StrCat("peer ", peer_address_.ToString(), ": ", DescribeAsyncEvent(fatal),
                                           ": it asked for what it was not granted")));
  }
  if (abandoning_) {
    if (!completion_queue_.Delivered(collected_)) return ScheduleOnce();  // Some may be for this queue pair.
    abandoning_ = false;
    return Abandon();
  }
  PostQueued();
  if (news_ == nullptr) return;
  if (news_->ended && !news_->established && !news_->ended_before_established &&
      !completion_queue_.Delivered(collected_)) {
    return ScheduleOnce();  // Completions from before the end are among them.
  }
  const std::unique_ptr<News> told = std::move(news_);
  if (told->established && !told->ended) return handler_.OnEstablished(told->private_data);
  if (told->established) {
    // Both happened since the last Poll(). The next Poll() reports the end.
    news_ = std::make_unique<News>();
    news_->ended = true;
    news_->why = told->why;
    ScheduleOnce();
    return handler_.OnEstablished(told->private_data);
  }
  if (told->ended_before_established) return handler_.OnConnectFailed(told->why, told->private_data);
  handler_.OnDisconnected(told->why);
}

void VerbsQueuePair::Fail(absl::Status why, absl::string_view private_data) {
  if (!disconnected_ && !std::exchange(ended_, true)) {
    News& last = news();
    last.ended = true;
    last.ended_before_established = !was_established_;
    last.why = why;
    if (!was_established_) last.private_data = std::string(private_data);
    // Poll() returns the completions from before the end first, then notifies the handler, then returns what
    // the end flushes.
    completion_queue_.Collect();
    collected_ = completion_queue_.CollectedMark();
    ScheduleOnce();
  }
  if (state_ == State::kError) return;
  error_ = std::move(why);
  EnterError();
}

void VerbsQueuePair::EnterError() {
  Move(Event::kEnd);
  if (qp_ != nullptr && !lost_) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_ERR;
    verbs().ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
  }
  FlushPending();
  // Releases the windows now, not when the ibv_qp is destroyed. From here on revocations complete, and then
  // the caller may deregister the memory, which fails while a window is bound to it (ibv_dereg_mr(3)).
  // ibv_dealloc_mw(3) unbinds.
  grants_.Release();
}

// Completes what was never posted to the ibv_qp as flushed.
void VerbsQueuePair::FlushPending() {
  for (const ReceiveWorkRequest& request : std::exchange(pending_receives_, {})) {
    DeliverFlushed(request.wr_id, Opcode::kReceive);
  }
  std::vector<uint64_t> revocations;
  grants_.DropQueued(revocations);
  for (uint64_t wr_id : revocations) DeliverFlushed(wr_id, Opcode::kRevoke);
}

void VerbsQueuePair::Disconnect() {
  if (disconnected_) return;
  disconnected_ = true;
  news_.reset();
  if (device_.in_forked_child()) {
    return Move(Event::kEnd);
  }
  if (lost_ || device_.gone()) {
    qp_num_ = number_;
    lost_ = true;
    EnterError();
    return Abandon();
  }
  if (was_established_) {
    // This may fail if the peer has disconnected, too.
    verbs().rdma_disconnect(id_);
  } else {
    DropId();  // In any state of the handshake: if the peer knows of it, the connection manager notifies it.
  }
  EnterError();
  if (qp_ != nullptr && device_.iwarp()) {
    // Work requests posted to an iWARP queue pair in error may never complete, including those posted just
    // before this side detected the error.
    return CollectAndAbandon();
  }
  PostDrain();
}

// Destroys the ibv_qp. OnTurn() completes what has not completed by then as flushed.
void VerbsQueuePair::CollectAndAbandon() {
  qp_num_ = number_;  // The device may soon reuse the number of the ibv_qp.
  completion_queue_.Collect();
  DestroyQp();
  completion_queue_.Collect();
  collected_ = completion_queue_.CollectedMark();
  abandoning_ = true;
  ScheduleOnce();
}

// Keeps the ibv_qp until it has flushed.
void VerbsQueuePair::DropId() {
  if (id_ == nullptr) return;
  verbs().rdma_destroy_id(std::exchange(id_, nullptr));
}

void VerbsQueuePair::PostDrain() {
  if (sends_.callers() == 0) FlushUntoldAndWaiting();  // Else they follow the last one of the caller's.
  if (qp_ == nullptr || !sends_.EndsSilently()) return;
  const uint32_t number =
      sends_.Push({.opcode = Opcode::kWrite, .kind = VerbsSendRing::Kind::kDrain, .signaled = true});
  ibv_send_wr drain = {};
  drain.wr_id = VerbsCompletionQueue::WorkRequestId(token_, /*receive=*/false, number);
  drain.opcode = IBV_WR_RDMA_WRITE;  // It has no bytes. A queue pair in error executes nothing.
  drain.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp_, &drain, &bad) == 0) return;
  sends_.Unpush(1);
  CollectAndAbandon();
}

void VerbsQueuePair::OnLost(const absl::Status& why) {
  if (lost_) return;
  lost_ = true;
  if (disconnected_) {
    qp_num_ = number_;
    return Abandon();
  }
  Fail(absl::Status(why.code(), absl::StrCat("peer ", peer_address_.ToString(), ": ", why.message())));
}

// Called when no flush is expected. Once the ibv_qp is destroyed, the device does not touch its memory any
// more.
void VerbsQueuePair::Abandon() {
  DestroyQp();
  while (receives_retired_ != receives_posted_) {
    DeliverFlushed(receives_[receives_retired_++ & (receives_.size() - 1)], Opcode::kReceive);
  }
  FlushUntold();
  while (!sends_.empty()) {
    const VerbsSendRing::Entry entry = sends_.Retire();
    if (entry.kind == VerbsSendRing::Kind::kCaller) {
      // It may have completed, but after one that did not.
      const CompletionStatus status =
          entry.completed && entry.signaled ? entry.status : CompletionStatus::kFlushed;
      completion_queue_.Deliver(token_, {.wr_id = entry.wr_id, .status = status, .opcode = entry.opcode});
    }
    if (entry.kind == VerbsSendRing::Kind::kInvalidate) DeliverFlushed(entry.wr_id, Opcode::kRevoke);
  }
  FlushUntoldAndWaiting();
}

void VerbsQueuePair::DestroyQp() {
  const uint32_t entries = options_.send_depth + grants_.sends_max() + 1 + options_.receive_depth;
  grants_.Release();
  if (qp_ == nullptr) return;
  device_.RemoveQueuePair(this);
  verbs().ibv_destroy_qp(std::exchange(qp_, nullptr));
  completion_queue_.Release(cq_, entries);
}

void VerbsQueuePair::OnAsyncEvent(ibv_event_type event) {
  async_events_.fetch_or(1u << event, std::memory_order_acq_rel);
  completion_queue_.Notify(token_);
}

}  // namespace hawser::fabric
