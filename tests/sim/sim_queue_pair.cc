#include "hawser/tests/sim/sim_queue_pair.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/sim_listener.h"
#include "hawser/transport/fabric/check_connect.h"

namespace hawser::sim {

SimQueuePair::SimQueuePair(SimFabric& fabric, SimCompletionQueue& completion_queue,
                           const fabric::QueuePairOptions& options, fabric::ConnectionHandler& handler)
    : fabric_(fabric),
      completion_queue_(completion_queue),
      handler_(handler),
      options_(options),
      qp_num_(network().AddQueuePair(this)),
      read_depth_(options.read_depth) {}

SimQueuePair::~SimQueuePair() {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (network().options().strict_destruction && powered_ && network().IsOn(host()) &&
      requester_.posted() + responder_.receives_out() + responder_.grants() != 0) {
    network().Violation(absl::StrCat("host ", host(), " destroys queue pair ", qp_num_, ", of which ",
                                     requester_.posted(), " sends and ", responder_.receives_out(),
                                     " receives have not come back, and ", responder_.grants(),
                                     " grants are in force"));
  }
  // Destroying a queue pair with work outstanding returns its memory at once, as ibv_destroy_qp() does.
  network().memory_guard().ReleaseAllOf(qp_num_);
  network().RemoveQueuePair(qp_num_);
}

void SimQueuePair::Trace(absl::string_view what) {
  if (network().history != nullptr) network().Note(host(), absl::StrCat("qp ", qp_num_, " ", what));
}

void SimQueuePair::Later(int64_t delay_ns, std::function<void(SimQueuePair&)> event) {
  network().At(now_ns() + delay_ns, [&network = network(), qp_num = qp_num_, event = std::move(event)] {
    if (SimQueuePair* const self = network.FindQueuePair(qp_num); self != nullptr) event(*self);
  });
}

void SimQueuePair::ToPeer(std::string what, std::function<void(SimQueuePair&)> event) {
  last_arrival_ns_ = std::max(last_arrival_ns_, now_ns() + faults().latency.Throw(dice()));
  wire_.push_back({now_ns(), last_arrival_ns_, std::move(what), std::move(event)});
  if (wire_.size() == 1) Later(last_arrival_ns_ - now_ns(), [](SimQueuePair& self) { self.Deliver(); });
}

// Delivers messages in order. If the peer cannot be reached, it retries until the retries end.
void SimQueuePair::Deliver() {
  while (!wire_.empty() && wire_.front().arrival_ns <= now_ns()) {
    SimQueuePair* const peer = network().FindQueuePair(peer_);
    if (peer == nullptr || !peer->powered_ || !network().Reachable(host(), peer_host_)) {
      if (now_ns() - wire_.front().arrival_ns < faults().retry_ns) {
        return Later(kLookAgainNs, [](SimQueuePair& self) { self.Deliver(); });
      }
      Trace("has lost its peer");
      wire_.clear();
      return requester_.FailOldest();
    }
    const InFlight arrived = std::move(wire_.front());
    wire_.pop_front();
    if (History* const history = network().history; history != nullptr && !arrived.what.empty()) {
      history->Arrived(arrived.sent_ns, host(), now_ns(), peer_host_, arrived.what);
    }
    arrived.event(*peer);
  }
  if (!wire_.empty()) {
    Later(wire_.front().arrival_ns - now_ns(), [](SimQueuePair& self) { self.Deliver(); });
  }
}

void SimQueuePair::Notify(std::function<void(fabric::ConnectionHandler&)> news) {
  completion_queue_.PushNews(
      [&network = network(), qp_num = qp_num_] {
        const SimQueuePair* const self = network.FindQueuePair(qp_num);
        return self != nullptr && !self->disconnected_;
      },
      [this, news = std::move(news)] { news(handler_); });
}

void SimQueuePair::NotifyEnd(const absl::Status& why) {
  completion_queue_.PushNews(
      [&network = network(), qp_num = qp_num_] {
        const SimQueuePair* const self = network.FindQueuePair(qp_num);
        return self != nullptr && !self->disconnected_;
      },
      [this, why] { handler_.OnDisconnected(why); }, [this] { return responder_.arrivals_to_poll() == 0; });
}

// ---- Connecting

absl::StatusOr<tls::Secret> SimQueuePair::ExportSecret(absl::string_view label) {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (peer_identity_ == nullptr) return QueuePair::ExportSecret(label);
  return SecretOf(dialed_ ? qp_num_ : peer_, label);
}

tls::Secret SimQueuePair::SecretOf(uint32_t dialer, absl::string_view label) {
  return tls::HmacSha256({}, absl::StrCat(dialer, label));
}

absl::Status SimQueuePair::Connect(const SocketAddress& address, absl::string_view private_data) {
  const SocketAddress& from = options_.local_address;
  std::lock_guard<std::mutex> lock(network().mutex());
  absl::Status allowed = fabric::CheckConnect(absl::StrCat("connect to ", address.ToString()),
                                              state_ == State::kIdle, from, address, private_data);
  if (!allowed.ok()) return allowed;
  state_ = State::kConnecting;
  dialed_ = true;
  peer_address_ = address;
  peer_host_ = SimFabric::HostOf(address);
  local_address_ = SimFabric::AddressOf(host(), static_cast<uint16_t>(1024 + qp_num_ % 64000));
  Trace(absl::StrCat("connects to ", address.ToString()));
  if (from.family() != AF_UNSPEC && SimFabric::HostOf(from) != host()) {
    Later(0, [from](SimQueuePair& self) {
      self.OnConnectFailed(absl::UnavailableError(
          absl::StrCat("connect from ", from.ToString(), ": no interface of this machine has that address")));
    });
    return absl::OkStatus();
  }
  if (dice().Chance(faults().connect_request_lost)) {
    if (!fabric_.carries_tls()) network().NoteConnect(std::string(private_data), /*lost=*/true);
    return absl::OkStatus();
  }
  Later(faults().event.Throw(dice()), [data = std::string(private_data)](SimQueuePair& self) {
    if (self.state_ != State::kConnecting || !self.network().Reachable(self.host(), self.peer_host_)) return;
    SimListener* const listener = self.network().FindListener(
        absl::StrCat(self.fabric_.ListenerPrefix(self.peer_host_), ":", self.peer_address_.port()));
    if (listener != nullptr && listener->has_tls() != (self.options_.tls != nullptr)) {
      return self.OnConnectFailed(absl::UnauthenticatedError(absl::StrCat(
          "connect to ", self.peer_address_.ToString(), ": one side has TLS, the other has not")));
    }
    if (listener != nullptr) {
      return listener->OnRequest(self.qp_num_, self.local_address_, self.options_.read_depth, data,
                                 self.network().IdentityOf(self.options_.tls.get()));
    }
    self.Later(self.faults().event.Throw(self.dice()), [](SimQueuePair& later) {
      later.OnConnectFailed(absl::UnavailableError(
          absl::StrCat("connect to ", later.peer_address_.ToString(), ": nothing listens there")));
    });
  });
  return absl::OkStatus();
}

absl::Status SimQueuePair::Accept(fabric::ConnectRequest& request, absl::string_view private_data) {
  auto* const sim_request = dynamic_cast<SimConnectRequest*>(&request);
  if (sim_request == nullptr) return fabric::RequestOfAnotherFabric(request);
  SimConnectRequest& asked = *sim_request;
  std::lock_guard<std::mutex> lock(network().mutex());
  absl::Status allowed = fabric::CheckAccept(absl::StrCat("accept ", asked.peer_address().ToString()),
                                             state_ == State::kIdle, private_data);
  if (!allowed.ok()) return allowed;
  asked.set_answered();
  peer_ = asked.requester();
  peer_address_ = asked.peer_address();
  peer_host_ = SimFabric::HostOf(peer_address_);
  local_address_ = asked.local_address();
  peer_identity_ = asked.peer_identity();
  read_depth_ = std::min(options_.read_depth, asked.read_depth());
  state_ = State::kAccepting;
  Trace(absl::StrCat("accepts qp ", peer_));
  const bool lost = dice().Chance(faults().accept_lost);
  Later(faults().event.Throw(dice()),
        [data = std::string(private_data), lost, identity = asked.own_identity()](SimQueuePair& self) {
          SimQueuePair* const requester = self.network().FindQueuePair(self.peer_);
          const bool reached = !lost && self.network().Reachable(self.host(), self.peer_host_);
          if (reached && requester != nullptr && requester->state_ == State::kConnecting) {
            return requester->OnAccepted(self.qp_num_, self.read_depth_, data, identity);
          }
          self.Later(self.faults().retry_ns, [](SimQueuePair& later) {
            if (later.state_ != State::kAccepting || later.responder_.has_received()) return;
            later.OnConnectFailed(absl::UnavailableError(absl::StrCat(
                "accept of ", later.peer_address_.ToString(), ": the peer went away before it heard of it")));
          });
        });
  return absl::OkStatus();
}

void SimQueuePair::OnAccepted(uint32_t peer, uint32_t read_depth, const std::string& private_data,
                              std::shared_ptr<const PeerIdentity> peer_identity) {
  if (!powered_) return;
  peer_identity_ = std::move(peer_identity);
  peer_ = peer;
  read_depth_ = std::min(read_depth_, read_depth);
  state_ = State::kEstablished;
  Trace("is established");
  Notify([private_data](fabric::ConnectionHandler& handler) { handler.OnEstablished(private_data); });
  const int64_t way_ns = faults().event.Throw(dice());
  network().At(now_ns() + way_ns, [&network = network(), peer, from = host()] {
    SimQueuePair* const other = network.FindQueuePair(peer);
    if (other != nullptr && network.Reachable(from, other->host())) other->OnReadyToUse();
  });
}

void SimQueuePair::OnReadyToUse() {
  if (state_ != State::kAccepting || !powered_) return;
  state_ = State::kEstablished;
  Trace("is established");
  Notify([](fabric::ConnectionHandler& handler) { handler.OnEstablished(""); });
}

void SimQueuePair::OnRejected(const std::string& private_data) {
  if (state_ != State::kConnecting || !powered_) return;
  EnterError();
  const absl::Status why =
      absl::PermissionDeniedError(absl::StrCat("connect to ", peer_address_.ToString(), ": rejected"));
  Notify([why, private_data](fabric::ConnectionHandler& handler) {
    handler.OnConnectFailed(why, private_data);
  });
}

void SimQueuePair::OnConnectFailed(const absl::Status& why) {
  if (state_ != State::kConnecting && state_ != State::kAccepting) return;
  EnterError();
  Notify([why](fabric::ConnectionHandler& handler) { handler.OnConnectFailed(why, ""); });
}

// ---- Posting

absl::Status SimQueuePair::PostSend(absl::Span<const fabric::SendWorkRequest> requests) {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (state_ != State::kEstablished && !(state_ == State::kAccepting && responder_.has_received())) {
    return absl::FailedPreconditionError("post a send: the queue pair is not connected, or in error");
  }
  return requester_.Post(requests, options_.send_depth, responder_.granted_ns());
}

bool SimQueuePair::PostInline(absl::Span<const uint8_t> message) {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (state_ != State::kEstablished || message.empty() ||
      message.size() > network().options().inline_bytes_max) {
    return false;
  }
  return requester_.PostInline(message);
}

void SimQueuePair::RingDoorbell() {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (state_ == State::kEstablished) requester_.RingDoorbell(responder_.granted_ns());
}

void SimQueuePair::CopiedSendFailed(fabric::CompletionStatus status) {
  if (disconnected_) return;
  NotifyEnd(
      absl::UnavailableError(absl::StrCat("a SEND that was copied failed: ", fabric::Describe(status))));
}

absl::Status SimQueuePair::PostReceive(absl::Span<const fabric::ReceiveWorkRequest> requests) {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (state_ == State::kError)
    return absl::FailedPreconditionError("post a receive: the queue pair is in error");
  return responder_.PostReceive(requests, options_.receive_depth);
}

size_t SimQueuePair::WithdrawReceives(absl::Span<uint64_t> wr_ids) {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (state_ == State::kError || !network().options().sends_can_wait) return 0;
  return responder_.WithdrawReceives(wr_ids);
}

absl::StatusOr<fabric::Granted> SimQueuePair::Grant(const fabric::Sge& range, Access access) {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (!fabric_.regions().Contains(range)) return fabric_.regions().Refusal(range);
  if (state_ == State::kIdle) return absl::FailedPreconditionError("grant: the queue pair is not connected");
  if (state_ == State::kError) return absl::FailedPreconditionError("grant: the queue pair is in error");
  return responder_.Grant(range, access, 2 * options_.send_depth);
}

void SimQueuePair::Revoke(uint32_t rkey, uint64_t wr_id) {
  std::lock_guard<std::mutex> lock(network().mutex());
  responder_.Revoke(rkey, wr_id);
}

uint32_t SimQueuePair::push_bytes_max() const { return fabric_.network().options().push_bytes_max; }

bool SimQueuePair::TakePush(uint64_t wr_id, const fabric::Sge& sink, uint64_t remote_address, uint32_t rkey) {
  std::lock_guard<std::mutex> lock(network().mutex());
  return working() && responder_.TakePush(wr_id, sink, remote_address, rkey);
}

void SimQueuePair::ReleaseGuard(MemoryGuard::Id guard, absl::string_view of) {
  const std::string found = network().memory_guard().Release(guard);
  if (!found.empty()) {
    network().Violation(absl::StrCat("host ", host(), ", queue pair ", qp_num_, ", ", of, ": ", found));
  }
}

// ---- Ending

void SimQueuePair::EnterError() {
  if (state_ == State::kError) return;
  Trace("is in error");
  state_ = State::kError;
  requester_.Flush();
  responder_.Flush();
}

void SimQueuePair::Disconnect() {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (std::exchange(disconnected_, true)) return;
  Trace("disconnects");
  const bool had_peer = peer_ != 0 && powered_;
  EnterError();
  if (!had_peer || std::exchange(said_goodbye_, true) || dice().Chance(faults().goodbye_lost)) return;
  const int64_t way_ns = faults().event.Throw(dice());
  network().At(std::max(last_arrival_ns_, now_ns() + way_ns),
               [&network = network(), peer = peer_, from = host()] {
                 SimQueuePair* const other = network.FindQueuePair(peer);
                 if (other != nullptr && network.Reachable(from, other->host()))
                   other->OnGoodbye("the peer has disconnected");
               });
}

void SimQueuePair::OnGoodbye(const std::string& why) {
  if (!powered_ || disconnected_) return;
  said_goodbye_ = true;
  const absl::Status status = absl::UnavailableError(absl::StrCat(peer_address_.ToString(), ": ", why));
  if (state_ == State::kConnecting || state_ == State::kAccepting) return OnConnectFailed(status);
  Trace(absl::StrCat("hears that ", why));
  if (dice().Chance(faults().error_on_goodbye)) EnterError();
  NotifyEnd(status);
}

void SimQueuePair::DeviceRemoved() {
  if (!powered_ || disconnected_ || state_ == State::kIdle) return;
  const absl::Status status = absl::UnavailableError("IBV_EVENT_DEVICE_FATAL: the device is gone");
  if (state_ == State::kConnecting || state_ == State::kAccepting) return OnConnectFailed(status);
  EnterError();
  NotifyEnd(status);
}

}  // namespace hawser::sim
