#include "hawser/transport/fabric/verbs/cm_handshake.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/check_connect.h"
#include "hawser/transport/fabric/verbs/connect_request.h"
#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {
namespace {

using State = VerbsEndpoint::State;
using Event = VerbsEndpoint::Event;

// The timeout of resolving, in which the kernel waits for a neighbour (ARP) or the subnet manager. Callers
// give up earlier.
constexpr int kResolveTimeoutMs = 30000;

// Ports to connect from that are tried if each is in use. Few of some 28,000 are.
constexpr int kConnectPortTries = 8;

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

VerbsCmHandshake::VerbsCmHandshake(VerbsEndpoint& endpoint, const VerbsFabricOptions& fabric,
                                   const SocketAddress& from)
    : endpoint_(endpoint), device_(endpoint.device()), fabric_(fabric), from_(from) {}

std::string VerbsCmHandshake::ConnectingTo() const { return absl::StrCat("connect to ", endpoint_.peer()); }

std::string VerbsCmHandshake::Accepting() const { return absl::StrCat("accept ", endpoint_.peer()); }

// --- The side that connects

absl::Status VerbsCmHandshake::Connect(const SocketAddress& address, absl::string_view private_data) {
  const std::string what = absl::StrCat("connect to ", address.ToString());
  absl::Status allowed = CheckConnect(what, endpoint_.state() == State::kIdle, from_, address, private_data);
  if (!allowed.ok()) return allowed;
  if (absl::Status status = device_.CheckProcess(what); !status.ok()) return status;
  if (absl::Status status = endpoint_.Enter(what); !status.ok()) return status;
  if (endpoint_.verbs().rdma_create_id(endpoint_.completion_queue().channel()->get(), &id_,
                                       VerbsCompletionQueue::CmContext(endpoint_.token()),
                                       RDMA_PS_TCP) != 0) {
    const int error = errno;
    id_ = nullptr;
    endpoint_.Leave();  // Still idle: the caller may try again.
    return VerbsError(what, "rdma_create_id()", error,
                      error == EMFILE ? "raise the limit of open files" : "");
  }
  endpoint_.SetPeer(address);
  private_data_ = std::string(private_data);
  endpoint_.Move(Event::kConnect);
  Resolve();
  return absl::OkStatus();
}

void VerbsCmHandshake::Resolve() {
  const bool bound = from_.family() != AF_UNSPEC;
  endpoint_.device_qp().SetAckTimeout(id_);
  if (!SetTrafficClass()) return;
  SocketAddress peer = endpoint_.remote(), from = from_;
  if (endpoint_.verbs().rdma_resolve_addr(id_, bound ? const_cast<sockaddr*>(from.get()) : nullptr,
                                          const_cast<sockaddr*>(peer.get()), kResolveTimeoutMs) != 0) {
    const int error = errno;
    endpoint_.Fail(
        bound && (error == EADDRNOTAVAIL || error == ENODEV)
            ? absl::UnavailableError(absl::StrCat(
                  ConnectingTo(), " from ", from_.ToString(), ": rdma_resolve_addr(): ", DescribeErrno(error),
                  ": no interface of this machine that has an RDMA device has that address"))
            : ConnectCallError(ConnectingTo(), "rdma_resolve_addr()", error));
  }
}

bool VerbsCmHandshake::IsResolving() const {
  return endpoint_.state() == State::kResolving ||
         (resolves_again_ && endpoint_.state() == State::kConnecting);
}

// Called before the route is resolved, because it is a part of the route. The side that accepts uses the
// traffic class of the request.
bool VerbsCmHandshake::SetTrafficClass() {
  if (!fabric_.traffic_class.has_value()) return true;
  uint8_t traffic_class = *fabric_.traffic_class;
  if (endpoint_.verbs().rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class,
                                        sizeof(traffic_class)) == 0) {
    return true;
  }
  endpoint_.Fail(ConnectCallError(ConnectingTo(), "rdma_set_option(RDMA_OPTION_ID_TOS)", errno));
  return false;
}

void VerbsCmHandshake::OnCmEvent(const VerbsCmEvent& event) {
  if (event.id != id_) return;  // It is late: ConnectFromAnotherPort() has replaced the id.
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (event.status != 0) return endpoint_.Fail(ConnectError(ConnectingTo(), event.type, event.status));
      return OnAddressResolved();
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (event.status != 0) return endpoint_.Fail(ConnectError(ConnectingTo(), event.type, event.status));
      return OnRouteResolved();
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      if (event.status != 0) return endpoint_.Fail(ConnectError(ConnectingTo(), event.type, event.status));
      return OnConnectResponse(event);
    case RDMA_CM_EVENT_ESTABLISHED:
      if (event.status != 0) return endpoint_.Fail(ConnectError(ConnectingTo(), event.type, event.status));
      return Establish(event);
    case RDMA_CM_EVENT_REJECTED:
      if (!was_established_ && !accepted_) {
        const absl::string_view data = OfPeer(event.private_data, private_data_, device_.iwarp());
        absl::Status why = RejectedError(ConnectingTo(), event.status, device_.iwarp(), !data.empty());
        const bool by_program = why.code() == absl::StatusCode::kPermissionDenied;
        return endpoint_.Fail(std::move(why), by_program ? WithoutPadding(data) : absl::string_view());
      }
      [[fallthrough]];
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_DISCONNECTED:
      if (was_established_) {
        absl::Status why = absl::UnavailableError(absl::StrCat("peer ", endpoint_.peer(),
                                                               " disconnected, or its process ended (",
                                                               DescribeCmEvent(event.type), ")"));
        if (event.type == RDMA_CM_EVENT_DISCONNECTED) SetPeersEnd(why);
        return endpoint_.Fail(std::move(why));
      }
      if (accepted_) {
        return endpoint_.Fail(absl::UnavailableError(absl::StrCat("accept ", endpoint_.peer(),
                                                                  ": it went away before it heard of it (",
                                                                  DescribeCmEvent(event.type), ")")));
      }
      return endpoint_.Fail(ConnectError(ConnectingTo(), event.type, event.status));
    case RDMA_CM_EVENT_ADDR_CHANGE:
      // A bond has switched to another link. Packets would still use the old one until the retries are used
      // up.
      return endpoint_.Fail(absl::UnavailableError(
          absl::StrCat("peer ", endpoint_.peer(),
                       ": the address that the connection was made from has moved to another link (",
                       DescribeCmEvent(event.type), ")")));
    default:
      return;  // DEVICE_REMOVAL: OnLost() is called soon. TIMEWAIT_EXIT: needs no answer.
  }
}

void VerbsCmHandshake::OnAddressResolved() {
  if (!IsResolving()) return;
  endpoint_.SetLocal(LocalAddress(*id_));
  if (!device_.Is(id_->verbs)) {
    return endpoint_.Fail(absl::UnavailableError(
        absl::StrCat(ConnectingTo(), ": the route leads over RDMA device ",
                     id_->verbs != nullptr ? id_->verbs->device->name : "(none)", ", but this program uses ",
                     device_.name(), " (RuntimeOptions::rdma_device, HAWSER_RDMA_DEVICE)")));
  }
  device_.MarkPresent();
  endpoint_.completion_queue().BindSentinel(endpoint_.local());
  if (endpoint_.verbs().rdma_resolve_route(id_, kResolveTimeoutMs) != 0) {
    endpoint_.Fail(ConnectCallError(ConnectingTo(), "rdma_resolve_route()", errno));
  }
}

void VerbsCmHandshake::OnRouteResolved() {
  if (!IsResolving()) return;
  if (std::exchange(resolves_again_, false)) return AskToConnect();
  endpoint_.Move(Event::kResolved);
  endpoint_.HandOver([id = id_, what = ConnectingTo()](
                         VerbsDeviceQp& qp) { return qp.Create(id, /*accepted=*/false, what); },
                     [this](const absl::Status& result) { OnCreated(result); });
}

void VerbsCmHandshake::OnCreated(const absl::Status& result) {
  // In error, commands that destroy it are given, or the destructor gives them.
  if (endpoint_.state() == State::kError) return;
  if (!result.ok()) return endpoint_.FailHandshake(result);
  endpoint_.TakeQp();
  endpoint_.OnCreated();
}

void VerbsCmHandshake::Continue() {
  if (accepted_) return Answer();
  endpoint_.Move(Event::kCreated);
  endpoint_.SetConnectsAlone(device_.iwarp());
  AskToConnect();
}

void VerbsCmHandshake::OnPeerSpoke() {
  if (endpoint_.state() != State::kAnswering && endpoint_.state() != State::kAccepting) return;
  // The peer sends data, but its last handshake message was lost. Tells the connection manager that the
  // connection is established.
  endpoint_.verbs().rdma_notify(id_, IBV_EVENT_COMM_EST);
}

void VerbsCmHandshake::AskToConnect() {
  endpoint_.HandOver(
      [id = id_, parameters = ConnectionParameters(), private_data = private_data_,
       what = ConnectingTo()](VerbsDeviceQp& qp) mutable {
        parameters.private_data = private_data.data();
        return qp.Connect(id, parameters, what);
      },
      [this](const absl::Status& result) { OnAskedToConnect(result); });
}

void VerbsCmHandshake::OnAskedToConnect(const absl::Status& result) {
  if (endpoint_.state() == State::kError) return;
  if (absl::IsAlreadyExists(result)) {
    const bool any_port = from_.family() == AF_UNSPEC || from_.port() == 0;
    if (any_port && ports_tried_++ < kConnectPortTries) return ConnectFromAnotherPort();
    return endpoint_.FailHandshake(absl::UnavailableError(result.message()));
  }
  if (!result.ok()) return endpoint_.FailHandshake(result);
  connect_returned_ = true;
  LeaveConnectThread();
}

void VerbsCmHandshake::ConnectFromAnotherPort() {
  endpoint_.HandOver(
      [id = TakeId()](VerbsDeviceQp& qp) {
        qp.DestroyId(id);
        return absl::OkStatus();
      },
      nullptr);
  if (endpoint_.verbs().rdma_create_id(endpoint_.completion_queue().channel()->get(), &id_,
                                       VerbsCompletionQueue::CmContext(endpoint_.token()),
                                       RDMA_PS_TCP) != 0) {
    const int error = errno;
    id_ = nullptr;
    return endpoint_.Fail(ConnectCallError(ConnectingTo(), "rdma_create_id()", error));
  }
  resolves_again_ = true;
  Resolve();
}

// Until rdma_connect() has returned and the peer has answered, a command of this queue pair may wait for the
// peer.
void VerbsCmHandshake::LeaveConnectThread() {
  if (connect_returned_ && endpoint_.state() == State::kEstablished) endpoint_.SetConnectsAlone(false);
}

// The caller of rdma_connect() or rdma_accept() sets `private_data`.
rdma_conn_param VerbsCmHandshake::ConnectionParameters() const {
  rdma_conn_param parameters = {};
  parameters.private_data_len = static_cast<uint8_t>(private_data_.size());
  parameters.initiator_depth = static_cast<uint8_t>(endpoint_.agreed_read_depth());
  parameters.responder_resources = static_cast<uint8_t>(endpoint_.agreed_read_depth());
  parameters.retry_count = fabric_.retry_count;
  parameters.rnr_retry_count = fabric_.rnr_retry_count;
  parameters.qp_num = endpoint_.current_qp_num();
  return parameters;
}

// The peer has accepted. An iWARP device has no such event: it finishes by itself and reports ESTABLISHED.
void VerbsCmHandshake::OnConnectResponse(const VerbsCmEvent& event) {
  if (endpoint_.state() != State::kConnecting) return;
  endpoint_.Move(Event::kResponse);
  endpoint_.HandOver([id = id_, what = ConnectingTo()](VerbsDeviceQp& qp) { return qp.Establish(id, what); },
                     [this, event](const absl::Status& result) { OnReadyToSend(result, event); });
}

void VerbsCmHandshake::OnReadyToSend(const absl::Status& result, const VerbsCmEvent& response) {
  if (endpoint_.state() == State::kError) return;
  if (!result.ok()) return endpoint_.FailHandshake(result);
  Establish(response);
}

void VerbsCmHandshake::Establish(const VerbsCmEvent& event) {
  if (endpoint_.state() != State::kConnecting && endpoint_.state() != State::kMoving &&
      endpoint_.state() != State::kAnswering && endpoint_.state() != State::kAccepting) {
    return;
  }
  if (!accepted_) {
    // The peer has answered with the minimum of its own depths and those of this side.
    endpoint_.SetReadDepth(AgreedReadDepth(endpoint_.agreed_read_depth(), event, device_.iwarp()));
  }
  endpoint_.Move(Event::kConnected);
  was_established_ = true;
  LeaveConnectThread();
  endpoint_.OnEstablished(accepted_ ? std::string() : event.private_data);
}

// --- The side that accepts

absl::Status VerbsCmHandshake::Accept(ConnectRequest& request, absl::string_view private_data) {
  auto* const verbs_request = dynamic_cast<VerbsConnectRequest*>(&request);
  if (verbs_request == nullptr) return RequestOfAnotherFabric(request);
  VerbsConnectRequest& asked = *verbs_request;
  const std::string what = absl::StrCat("accept ", asked.peer_address().ToString());
  absl::Status allowed = CheckAccept(what, endpoint_.state() == State::kIdle, private_data);
  if (!allowed.ok()) return allowed;
  if (absl::Status status = device_.CheckProcess(what); !status.ok()) return status;
  if (absl::Status status = endpoint_.Enter(what); !status.ok()) return status;
  const auto refuse = [&](absl::Status why) {
    endpoint_.Leave();
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
  endpoint_.SetPeer(asked.peer_address());
  endpoint_.SetLocal(LocalAddress(*id_));
  private_data_ = std::string(private_data);
  endpoint_.SetReadDepth(asked.AgreedReadDepth(endpoint_.agreed_read_depth()));
  endpoint_.Move(Event::kAccept);
  accepted_ = true;
  device_.MarkPresent();
  endpoint_.completion_queue().BindSentinel(endpoint_.local());
  endpoint_.HandOver(
      [id = id_, from = asked.channel(), what](VerbsDeviceQp& qp) mutable {
        if (absl::Status status = qp.TakeOver(id, std::move(from), what); !status.ok()) return status;
        qp.SetAckTimeout(id);
        return qp.Create(id, /*accepted=*/true, what);
      },
      [this](const absl::Status& result) { OnCreated(result); });
  return absl::OkStatus();
}

void VerbsCmHandshake::Answer() {
  endpoint_.HandOver(
      [id = id_, parameters = ConnectionParameters(), private_data = private_data_,
       what = Accepting()](VerbsDeviceQp& qp) mutable {
        parameters.private_data = private_data.data();
        return qp.Accept(id, parameters, what);
      },
      [this](const absl::Status& result) { OnAnswered(result); });
}

void VerbsCmHandshake::OnAnswered(const absl::Status& result) {
  if (endpoint_.state() == State::kError) return;
  if (!result.ok()) return endpoint_.FailHandshake(result);
  if (endpoint_.state() == State::kAnswering)
    endpoint_.Move(Event::kAnswered);  // Else the peer's message, or an event, was faster.
}

// --- Ending

bool VerbsCmHandshake::MayReject() const {
  return accepted_ && id_ != nullptr && !endpoint_.device_qp().answered();
}

void VerbsCmHandshake::Reject(std::string reason) {
  reason.resize(std::min(reason.size(), kRejectPrivateDataMax));
  reason = RejectionData(reason, device_.iwarp());
  endpoint_.HandOver(
      [id = std::exchange(id_, nullptr), reason = std::move(reason)](VerbsDeviceQp& qp) {
        qp.verbs().rdma_reject(id, reason.data(), static_cast<uint8_t>(reason.size()));
        qp.DestroyId(id);
        return absl::OkStatus();
      },
      nullptr);
}

void VerbsCmHandshake::Disconnect() {
  // This may fail if the peer has disconnected, too.
  if (was_established_) {
    endpoint_.HandOver(
        [id = id_](VerbsDeviceQp& qp) {
          qp.verbs().rdma_disconnect(id);
          return absl::OkStatus();
        },
        nullptr);
    return;
  }
  // In any state of the handshake: if the peer knows of it, the connection manager notifies it.
  if (id_ == nullptr) return;
  endpoint_.HandOver(
      [id = TakeId()](VerbsDeviceQp& qp) {
        qp.DestroyId(id);
        return absl::OkStatus();
      },
      nullptr);
}

}  // namespace hawser::fabric
