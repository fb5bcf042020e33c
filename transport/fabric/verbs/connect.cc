// How a VerbsQueuePair is connected, and how its connection ends.

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
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

// The private data `received` of a rejection, if the peer sent it. Where a port is closed, two drivers for
// iWARP hand back `sent`, what this side sent: irdma as it is (irdma_get_cmevent_info()), qedr behind a
// header of 4 bytes (qed_iwarp_mpa_v2_set_private()).
absl::string_view OfPeer(absl::string_view received, absl::string_view sent, bool iwarp) {
  const bool handed_back = iwarp && !sent.empty() && absl::EndsWith(received, sent) &&
                           (received.size() == sent.size() || received.size() == sent.size() + 4);
  return handed_back ? absl::string_view() : received;
}

}  // namespace

std::string VerbsQueuePair::ConnectingTo() const {
  return absl::StrCat("connect to ", peer_address_.ToString());
}

std::string VerbsQueuePair::Accepting() const { return absl::StrCat("accept ", peer_address_.ToString()); }

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
  private_data_ = std::string(private_data);
  Move(Event::kConnect);
  device_qp_->SetAckTimeout(id_);
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
  TakeResults();  // Those of commands that the event follows from.
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (event.status != 0) return Fail(ConnectError(ConnectingTo(), event.type, event.status));
      return OnAddressResolved();
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (event.status != 0) return Fail(ConnectError(ConnectingTo(), event.type, event.status));
      return OnRouteResolved();
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      if (event.status != 0) return Fail(ConnectError(ConnectingTo(), event.type, event.status));
      return OnConnectResponse(event);
    case RDMA_CM_EVENT_ESTABLISHED:
      if (event.status != 0) return Fail(ConnectError(ConnectingTo(), event.type, event.status));
      return Establish(event);
    case RDMA_CM_EVENT_REJECTED:
      if (!was_established_ && !accepted_) {
        const absl::string_view data = OfPeer(event.private_data, private_data_, device_.iwarp());
        absl::Status why = RejectedError(ConnectingTo(), event.status, device_.iwarp(), !data.empty());
        const bool by_program = why.code() == absl::StatusCode::kPermissionDenied;
        return Fail(std::move(why), by_program ? WithoutPadding(data) : absl::string_view());
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
      return Fail(ConnectError(ConnectingTo(), event.type, event.status));
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
  Move(Event::kResolved);
  HandOver([id = id_,
            what = ConnectingTo()](VerbsDeviceQp& qp) { return qp.Create(id, /*accepted=*/false, what); },
           &VerbsQueuePair::OnCreated);
}

// Posts receives before the handshake continues, so that the peer's first message finds one.
void VerbsQueuePair::OnCreated(const absl::Status& result) {
  if (state_ == State::kError) return;  // Commands that destroy it are given, or the destructor gives them.
  if (!result.ok()) return FailHandshake(result);
  qp_ = device_qp_->qp();
  cq_ = device_qp_->cq();
  qp_num_ = qp_->qp_num;
  inline_bytes_ = device_qp_->inline_bytes();
  const std::vector<ReceiveWorkRequest> pending = std::exchange(pending_receives_, {});
  const absl::Status posted = PostReceives(pending);
  if (!posted.ok()) {  // It has posted none.
    for (const ReceiveWorkRequest& request : pending) DeliverFlushed(request.wr_id, Opcode::kReceive);
  }
  if (state_ == State::kError) return RejectPeer(error_);
  accepted_ ? Answer() : AskToConnect();
  if (grants_.sends_max() > 0) FillWindowStock();  // Before the first grant needs one.
}

// Has the control thread allocate windows, if few are left.
void VerbsQueuePair::FillWindowStock() {
  if (!device_.windows().RunsLow()) return;
  HandOver(
      [&device = device_](VerbsDeviceQp&) {
        device.windows().Fill(device.pd());
        return absl::OkStatus();
      },
      nullptr);
}

void VerbsQueuePair::AskToConnect() {
  Move(Event::kCreated);
  connects_alone_ = device_.iwarp();
  HandOver(
      [id = id_, parameters = ConnectionParameters(), private_data = private_data_,
       what = ConnectingTo()](VerbsDeviceQp& qp) mutable {
        parameters.private_data = private_data.data();
        return qp.Connect(id, parameters, what);
      },
      &VerbsQueuePair::OnAskedToConnect);
}

void VerbsQueuePair::OnAskedToConnect(const absl::Status& result) {
  if (state_ == State::kError) return;
  if (!result.ok()) return FailHandshake(result);
  connect_returned_ = true;
  LeaveConnectThread();
}

// Until rdma_connect() has returned and the peer has answered, a command of this queue pair may wait for the
// peer.
void VerbsQueuePair::LeaveConnectThread() {
  if (connect_returned_ && state_ == State::kEstablished) connects_alone_ = false;
}

// The caller of rdma_connect() or rdma_accept() sets `private_data`.
rdma_conn_param VerbsQueuePair::ConnectionParameters() const {
  rdma_conn_param parameters = {};
  parameters.private_data_len = static_cast<uint8_t>(private_data_.size());
  parameters.initiator_depth = static_cast<uint8_t>(read_depth_);
  parameters.responder_resources = static_cast<uint8_t>(read_depth_);
  parameters.retry_count = fabric_.retry_count;
  parameters.rnr_retry_count = fabric_.rnr_retry_count;
  parameters.qp_num = qp_num_;
  return parameters;
}

// The peer has accepted. An iWARP device has no such event: it finishes by itself and reports ESTABLISHED.
void VerbsQueuePair::OnConnectResponse(const VerbsCmEvent& event) {
  if (state_ != State::kConnecting) return;
  Move(Event::kResponse);
  response_ = event;
  HandOver([id = id_, what = ConnectingTo()](VerbsDeviceQp& qp) { return qp.Establish(id, what); },
           &VerbsQueuePair::OnReadyToSend);
}

void VerbsQueuePair::OnReadyToSend(const absl::Status& result) {
  if (state_ == State::kError) return;
  if (!result.ok()) return FailHandshake(result);
  Establish(std::exchange(response_, {}));
}

void VerbsQueuePair::Establish(const VerbsCmEvent& event) {
  if (state_ != State::kConnecting && state_ != State::kMoving && state_ != State::kAnswering &&
      state_ != State::kAccepting) {
    return;
  }
  if (!accepted_) {
    // The peer has answered with the minimum of its own depths and those of this side.
    read_depth_ = AgreedReadDepth(read_depth_, event, device_.iwarp());
  }
  Move(Event::kConnected);
  was_established_ = true;
  LeaveConnectThread();
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
  private_data_ = std::string(private_data);
  read_depth_ = asked.AgreedReadDepth(read_depth_);
  Move(Event::kAccept);
  accepted_ = true;
  device_.Prove();
  completion_queue_.BindSentinel(local_address_);
  HandOver(
      [id = id_, from = asked.channel(), what](VerbsDeviceQp& qp) mutable {
        if (absl::Status status = qp.TakeOver(id, std::move(from), what); !status.ok()) return status;
        qp.SetAckTimeout(id);
        return qp.Create(id, /*accepted=*/true, what);
      },
      &VerbsQueuePair::OnCreated);
  return absl::OkStatus();
}

void VerbsQueuePair::Answer() {
  HandOver(
      [id = id_, parameters = ConnectionParameters(), private_data = private_data_,
       what = Accepting()](VerbsDeviceQp& qp) mutable {
        parameters.private_data = private_data.data();
        return qp.Accept(id, parameters, what);
      },
      &VerbsQueuePair::OnAnswered);
}

void VerbsQueuePair::OnAnswered(const absl::Status& result) {
  if (state_ == State::kError) return;
  if (!result.ok()) return FailHandshake(result);
  if (state_ == State::kAnswering)
    Move(Event::kAnswered);  // Else the peer's message, or an event, was faster.
}

// --- Ending

VerbsQueuePair::News& VerbsQueuePair::news() {
  if (news_ == nullptr) news_ = std::make_unique<News>();
  return *news_;
}

void VerbsQueuePair::OnTurn() {
  scheduled_ = false;
  TakeResults();
  const uint32_t events = device_qp_->TakeAsyncEvents();
  if ((events & 1u << IBV_EVENT_COMM_EST) != 0 &&
      (state_ == State::kAnswering || state_ == State::kAccepting)) {
    // The peer sends data, but its last handshake message was lost. Tells the connection manager that the
    // connection is established.
    verbs().rdma_notify(id_, IBV_EVENT_COMM_EST);
  }
  for (ibv_event_type fatal : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    if ((events & 1u << fatal) == 0) continue;
    absl::Status why =
        fatal == IBV_EVENT_QP_FATAL
            ? absl::UnavailableError(absl::StrCat("peer ", peer_address_.ToString(), ": ",
                                                  DescribeAsyncEvent(fatal),
                                                  ": the device gave up this queue pair"))
            : ViolationError(Violation::kMemoryAccess,
                             absl::StrCat("peer ", peer_address_.ToString(), ": ", DescribeAsyncEvent(fatal),
                                          ": it asked for what it was not granted"));
    FailAnywhere(std::move(why));
  }
  if (flushes_) {
    if (!completion_queue_.Delivered(collected_)) return ScheduleOnce();  // Some may be for this queue pair.
    flushes_ = false;
    return FlushOutstanding();
  }
  PostQueued();
  if (news_ == nullptr) return;
  if (news_->ended && !collected_all_) CollectBeforeTheEnd();
  if (news_->ended && !news_->established && !news_->ended_before_established) {
    // Completions from before the end come first.
    if (!collected_all_) return;  // This is called again when they can be collected.
    if (!completion_queue_.Delivered(collected_)) return ScheduleOnce();
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

void VerbsQueuePair::CollectBeforeTheEnd() {
  collected_all_ = completion_queue_.Collect(cq_, token_);
  collected_ = completion_queue_.CollectedMark();
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
    CollectBeforeTheEnd();
    ScheduleOnce();
  }
  if (state_ == State::kError) return;
  error_ = std::move(why);
  EnterError();
}

// A work request has failed. Its completion says why, but not to a peer that waits for an answer.
void VerbsQueuePair::OnFailedRequest() {
  if (!AwaitsAnswer()) return EnterError();
  FailHandshake(absl::UnavailableError(
      absl::StrCat(Accepting(), ": the device ended the queue pair before the peer had its answer")));
}

void VerbsQueuePair::FailAnywhere(absl::Status why) {
  if (AwaitsAnswer()) return FailHandshake(why);
  Fail(std::move(why));
}

void VerbsQueuePair::FailHandshake(const absl::Status& why) {
  RejectPeer(why);
  Fail(why);
}

// At the side that accepts: a peer that has no answer yet gets this one.
void VerbsQueuePair::RejectPeer(const absl::Status& why) {
  if (!accepted_ || id_ == nullptr || device_qp_->answered()) return;
  std::string reason = handler_.OnAcceptFailed(why);
  reason.resize(std::min(reason.size(), kRejectPrivateDataMax));
  reason = RejectionData(reason, device_.iwarp());
  HandOver(
      [id = std::exchange(id_, nullptr), reason = std::move(reason)](VerbsDeviceQp& qp) {
        qp.verbs().rdma_reject(id, reason.data(), static_cast<uint8_t>(reason.size()));
        qp.DestroyId(id);
        return absl::OkStatus();
      },
      nullptr);
}

void VerbsQueuePair::EnterError() {
  const bool again = state_ == State::kError;
  Move(Event::kEnd);
  releasing_ = releasing_ || (entered_ && !again);
  FlushPending();
  if (again || !entered_) return;
  device_qp_->End();
  VerbsGrants::Leftover grants = grants_.TakeAll();
  releases_some_ = grants.gives_access();
  device_qp_->Release(std::move(grants));
  sinks_.CloseAll();
  HandOver([move = !lost_](VerbsDeviceQp& qp) { return qp.EnterError(move); },
           &VerbsQueuePair::OnErrorEntered);
}

void VerbsQueuePair::OnErrorEntered(const absl::Status& released) {
  releasing_ = false;
  unreleased_ = !released.ok();
  if (unreleased_) {
    if (disconnected_) Abandon();
    return;
  }
  releases_some_ = false;
  for (uint64_t wr_id : std::exchange(revocations_, {})) DeliverFlushed(wr_id, Opcode::kRevoke);
  if (disconnected_) PostDrain();
}

// Completes what was never posted to the ibv_qp as flushed.
void VerbsQueuePair::FlushPending() {
  for (const ReceiveWorkRequest& request : std::exchange(pending_receives_, {})) {
    DeliverFlushed(request.wr_id, Opcode::kReceive);
  }
  std::vector<uint64_t> revocations;
  grants_.DropQueued(revocations);
  for (uint64_t wr_id : revocations) FlushRevocation(wr_id);
}

void VerbsQueuePair::Disconnect() {
  if (disconnected_) return;
  disconnected_ = true;
  news_.reset();
  if (device_.in_forked_child()) {
    return Move(Event::kEnd);
  }
  if (lost_ || device_.gone()) {
    lost_ = true;
    EnterError();
    return Abandon();
  }
  if (was_established_) {
    // This may fail if the peer has disconnected, too.
    HandOver(
        [id = id_](VerbsDeviceQp& qp) {
          qp.verbs().rdma_disconnect(id);
          return absl::OkStatus();
        },
        nullptr);
  } else {
    DropId();  // In any state of the handshake: if the peer knows of it, the connection manager notifies it.
  }
  EnterError();
  // Work requests posted to an iWARP queue pair in error may never complete, including those posted just
  // before this side detected the error.
  if (device_.iwarp() || unreleased_) return Abandon();
  if (!releasing_) PostDrain();  // Else when it is in error.
}

void VerbsQueuePair::DropId() {
  if (id_ == nullptr) return;
  HandOver(
      [id = std::exchange(id_, nullptr)](VerbsDeviceQp& qp) {
        qp.DestroyId(id);
        return absl::OkStatus();
      },
      nullptr);
}

// Keeps the ibv_qp until it has flushed.
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
  Abandon();
}

void VerbsQueuePair::OnLost(const absl::Status& why) {
  if (lost_) return;
  lost_ = true;
  if (disconnected_) return Abandon();
  Fail(absl::Status(why.code(), absl::StrCat("peer ", peer_address_.ToString(), ": ", why.message())));
}

bool VerbsQueuePair::ForceFlush() {
  if (device_.in_forked_child()) return false;
  Abandon();
  return true;
}

// Called when no flush is expected. Has the ibv_qp destroyed: after that the device does not touch its memory
// any more.
void VerbsQueuePair::Abandon() {
  if (!entered_ || std::exchange(abandoned_, true)) return;
  qp_num_ = number_;  // The device may soon reuse the number of the ibv_qp.
  qp_ = nullptr;
  HandOver(
      [](VerbsDeviceQp& qp) {
        qp.Destroy();
        return absl::OkStatus();
      },
      &VerbsQueuePair::OnDestroyed);
}

void VerbsQueuePair::OnDestroyed(const absl::Status&) {
  collected_ = completion_queue_.CollectedMark();
  flushes_ = true;
  ScheduleOnce();
}

// Completes what the device will not complete any more.
void VerbsQueuePair::FlushOutstanding() {
  // What the device has not deregistered by now, it will not: nothing is left to wait for.
  releasing_ = releases_some_ = unreleased_ = false;
  sinks_.Release();
  for (uint64_t wr_id : std::exchange(revocations_, {})) DeliverFlushed(wr_id, Opcode::kRevoke);
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

}  // namespace hawser::fabric
