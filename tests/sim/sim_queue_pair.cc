#include "hawser/tests/sim/sim_queue_pair.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/sim_listener.h"
#include "hawser/transport/fabric/check_connect.h"

namespace hawser::sim {
namespace {

using fabric::Completion;
using fabric::CompletionStatus;
using fabric::Opcode;

// How often a requester whose peer cannot be reached looks again.
constexpr int64_t kLookAgainNs = 10'000'000;

}  // namespace

SimQueuePair::SimQueuePair(SimFabric& fabric, SimCompletionQueue& completion_queue,
                           const fabric::QueuePairOptions& options, fabric::ConnectionHandler& handler)
    : fabric_(fabric),
      completion_queue_(completion_queue),
      handler_(handler),
      options_(options),
      read_depth_(options.read_depth) {
  qp_num_ = network().AddQueuePair(this);
  last_rkey_ = qp_num_ << 16;
}

SimQueuePair::~SimQueuePair() {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (network().options().strict_destruction && powered_ && network().IsOn(host()) &&
      posted_ + receives_out_ != 0) {
    network().Violation(absl::StrCat("host ", host(), " destroys queue pair ", qp_num_, ", of which ",
                                     posted_, " sends and ", receives_out_, " receives have not come back"));
  }
  // Whoever destroys a queue pair with work outstanding has its memory back at once, as from
  // ibv_destroy_qp().
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

// What is on the wire arrives in order. A peer that cannot be reached is tried again, until retries end.
void SimQueuePair::Deliver() {
  while (!wire_.empty() && wire_.front().arrival_ns <= now_ns()) {
    SimQueuePair* const peer = network().FindQueuePair(peer_);
    if (peer == nullptr || !peer->powered_ || !network().Reachable(host(), peer_host_)) {
      if (now_ns() - wire_.front().arrival_ns < faults().retry_ns) {
        return Later(kLookAgainNs, [](SimQueuePair& self) { self.Deliver(); });
      }
      Trace("has lost its peer");
      wire_.clear();
      return FailOldest();
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

void SimQueuePair::Tell(std::function<void(fabric::ConnectionHandler&)> news) {
  completion_queue_.PushNews(
      [&network = network(), qp_num = qp_num_] {
        const SimQueuePair* const self = network.FindQueuePair(qp_num);
        return self != nullptr && !self->disconnected_;
      },
      [this, news = std::move(news)] { news(handler_); });
}

// ---- Connecting

absl::Status SimQueuePair::Connect(const fabric::SocketAddress& address, absl::string_view private_data) {
  const fabric::SocketAddress& from = options_.local_address;
  std::lock_guard<std::mutex> lock(network().mutex());
  absl::Status allowed = fabric::CheckConnect(absl::StrCat("connect to ", address.ToString()),
                                              state_ == State::kIdle, from, address, private_data);
  if (!allowed.ok()) return allowed;
  state_ = State::kConnecting;
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
  if (dice().Chance(faults().connect_request_lost)) return absl::OkStatus();
  Later(faults().event.Throw(dice()), [data = std::string(private_data)](SimQueuePair& self) {
    if (self.state_ != State::kConnecting || !self.network().Reachable(self.host(), self.peer_host_)) return;
    SimListener* const listener =
        self.network().FindListener(absl::StrCat(self.peer_host_, ":", self.peer_address_.port()));
    if (listener != nullptr) {
      return listener->OnRequest(self.qp_num_, self.local_address_, self.options_.read_depth, data);
    }
    self.Later(self.faults().event.Throw(self.dice()), [](SimQueuePair& later) {
      later.OnConnectFailed(absl::UnavailableError(
          absl::StrCat("connect to ", later.peer_address_.ToString(), ": nobody listens there")));
    });
  });
  return absl::OkStatus();
}

absl::Status SimQueuePair::Accept(std::unique_ptr<fabric::ConnectRequest> request,
                                  absl::string_view private_data) {
  auto& asked = static_cast<SimConnectRequest&>(*request);
  std::lock_guard<std::mutex> lock(network().mutex());
  asked.set_answered();
  absl::Status allowed = fabric::CheckAccept(absl::StrCat("accept ", asked.peer_address().ToString()),
                                             state_ == State::kIdle, private_data);
  if (!allowed.ok()) return allowed;
  peer_ = asked.requester();
  peer_address_ = asked.peer_address();
  peer_host_ = SimFabric::HostOf(peer_address_);
  local_address_ = asked.local_address();
  read_depth_ = std::min(options_.read_depth, asked.read_depth());
  state_ = State::kAccepting;
  Trace(absl::StrCat("accepts qp ", peer_));
  const bool lost = dice().Chance(faults().accept_lost);
  Later(faults().event.Throw(dice()), [data = std::string(private_data), lost](SimQueuePair& self) {
    SimQueuePair* const requester = self.network().FindQueuePair(self.peer_);
    const bool reached = !lost && self.network().Reachable(self.host(), self.peer_host_);
    if (reached && requester != nullptr && requester->state_ == State::kConnecting) {
      return requester->OnAccepted(self.qp_num_, self.read_depth_, data);
    }
    self.Later(self.faults().retry_ns, [](SimQueuePair& later) {
      if (later.state_ != State::kAccepting || later.has_received_) return;
      later.OnConnectFailed(absl::UnavailableError(absl::StrCat(
          "accept of ", later.peer_address_.ToString(), ": the peer went away before it heard of it")));
    });
  });
  return absl::OkStatus();
}

void SimQueuePair::OnAccepted(uint32_t peer, uint32_t read_depth, const std::string& private_data) {
  if (!powered_) return;
  peer_ = peer;
  read_depth_ = std::min(read_depth_, read_depth);
  state_ = State::kEstablished;
  Trace("is established");
  Tell([private_data](fabric::ConnectionHandler& handler) { handler.OnEstablished(private_data); });
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
  Tell([](fabric::ConnectionHandler& handler) { handler.OnEstablished(""); });
}

void SimQueuePair::OnRejected(const std::string& private_data) {
  if (state_ != State::kConnecting || !powered_) return;
  EnterError();
  const absl::Status why =
      absl::PermissionDeniedError(absl::StrCat("connect to ", peer_address_.ToString(), ": rejected"));
  Tell([why, private_data](fabric::ConnectionHandler& handler) {
    handler.OnConnectFailed(why, private_data);
  });
}

void SimQueuePair::OnConnectFailed(const absl::Status& why) {
  if (state_ != State::kConnecting && state_ != State::kAccepting) return;
  EnterError();
  Tell([why](fabric::ConnectionHandler& handler) { handler.OnConnectFailed(why, ""); });
}

// ---- Posting

absl::Status SimQueuePair::Check(const fabric::SendWorkRequest& request) const {
  if (request.sges.empty() || request.sges.size() > fabric::kSgeMax) {
    return absl::InvalidArgumentError(absl::StrCat("a work request of ", request.sges.size(), " sges"));
  }
  for (const fabric::Sge& sge : request.sges) {
    if (!fabric_.regions().Contains(sge)) return fabric_.regions().Refusal(sge);
  }
  return absl::OkStatus();
}

absl::Status SimQueuePair::PostSend(absl::Span<const fabric::SendWorkRequest> requests) {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (state_ != State::kEstablished && !(state_ == State::kAccepting && has_received_)) {
    return absl::FailedPreconditionError("post a send: the queue pair is not connected, or in error");
  }
  if (posted_ + requests.size() > options_.send_depth) {
    return absl::ResourceExhaustedError(absl::StrCat("post a send: ", posted_, " of ", options_.send_depth,
                                                     " places of the send queue are taken"));
  }
  for (const fabric::SendWorkRequest& request : requests) {
    if (absl::Status status = Check(request); !status.ok()) return status;
  }
  for (const fabric::SendWorkRequest& request : requests) {
    Send& send = sends_.emplace_back();
    send.number = next_number_++;
    send.request = request;
    send.not_before_ns = granted_ns_;
    send.sges.assign(request.sges.begin(), request.sges.end());
    send.length = 0;
    for (const fabric::Sge& sge : send.sges) {
      send.length += sge.length;
      send.guards.push_back(request.opcode == Opcode::kRead
                                ? network().memory_guard().Poison(sge.address, sge.length, qp_num_)
                                : network().memory_guard().WatchSource(sge.address, sge.length, qp_num_));
    }
    ++posted_;
  }
  TakeUp();
  return absl::OkStatus();
}

absl::Status SimQueuePair::PostReceive(absl::Span<const fabric::ReceiveWorkRequest> requests) {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (state_ == State::kError)
    return absl::FailedPreconditionError("post a receive: the queue pair is in error");
  if (receives_out_ + requests.size() > options_.receive_depth) {
    return absl::ResourceExhaustedError(absl::StrCat("post a receive: ", receives_out_, " of ",
                                                     options_.receive_depth,
                                                     " places of the receive queue are taken"));
  }
  for (const fabric::ReceiveWorkRequest& request : requests) {
    if (!fabric_.regions().Contains(request.buffer)) return fabric_.regions().Refusal(request.buffer);
  }
  for (const fabric::ReceiveWorkRequest& request : requests) {
    receives_.push_back(
        {request.wr_id, request.buffer,
         network().memory_guard().Poison(request.buffer.address, request.buffer.length, qp_num_)});
    ++receives_out_;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> SimQueuePair::Grant(const fabric::Sge& range, Access access) {
  std::lock_guard<std::mutex> lock(network().mutex());
  if (!fabric_.regions().Contains(range)) return fabric_.regions().Refusal(range);
  if (state_ == State::kError) return absl::FailedPreconditionError("grant: the queue pair is in error");
  if (grants_.size() >= 2 * options_.send_depth) {
    return absl::ResourceExhaustedError(absl::StrCat("grant: ", grants_.size(), " are out already"));
  }
  const uint32_t rkey = ++last_rkey_;
  // The peer may write into what is granted for that, so only what it may read is watched.
  const MemoryGuard::Id guard =
      access == Access::kRead ? network().memory_guard().WatchSource(range.address, range.length, qp_num_)
                              : 0;
  // In the order of posts, as on a send queue.
  granted_ns_ = std::max(granted_ns_, now_ns() + faults().fetch.Throw(dice()));
  grants_[rkey] = {range, access, granted_ns_, guard};
  return rkey;
}

void SimQueuePair::Revoke(uint32_t rkey, uint64_t wr_id) {
  std::lock_guard<std::mutex> lock(network().mutex());
  const auto grant = grants_.find(rkey);
  if (grant == grants_.end())
    network().Violation(absl::StrCat("rkey ", rkey, " is revoked, which is not granted"));
  const int64_t in_force_ns = grant == grants_.end() ? now_ns() : std::max(now_ns(), grant->second.from_ns);
  Later(in_force_ns - now_ns() + faults().revocation.Throw(dice()), [rkey, wr_id](SimQueuePair& self) {
    if (auto it = self.grants_.find(rkey); it != self.grants_.end()) {
      self.ReleaseGuard(it->second.guard, "a grant");
      self.grants_.erase(it);
    }
    const bool flushed = self.state_ == State::kError;
    self.completion_queue_.PushAt(
        self.now_ns() + self.faults().completion.Throw(self.dice()),
        {{wr_id, self.qp_num_, flushed ? CompletionStatus::kFlushed : CompletionStatus::kSuccess,
          Opcode::kRevoke, 0},
         nullptr});
  });
}

// ---- Requester

// As long as there are READs to be had.
void SimQueuePair::TakeUp() {
  if (transmitting_ || !working() || taken_up_ == sends_.size()) return;
  if (sends_[taken_up_].request.opcode == Opcode::kRead && reads_outstanding_ == read_depth_) return;
  transmitting_ = true;
  const int64_t granted_ns = sends_[taken_up_].not_before_ns;
  Later(std::max(faults().fetch.Throw(dice()), granted_ns - now_ns()), [](SimQueuePair& self) {
    self.transmitting_ = false;
    self.TransmitHead();
  });
}

void SimQueuePair::TransmitHead() {
  if (!working() || taken_up_ == sends_.size()) return;
  Send& send = sends_[taken_up_];
  if (dice().Chance(faults().request_fails)) {
    Trace(absl::StrCat("fails work request ", send.number));
    return FailOldest();
  }
  if (!network().Reachable(host(), peer_host_)) {
    if (unreachable_since_ns_ == 0) unreachable_since_ns_ = now_ns();
    if (now_ns() - unreachable_since_ns_ >= faults().retry_ns) {
      return FailOldest();
    }
    transmitting_ = true;
    return Later(kLookAgainNs, [](SimQueuePair& self) {
      self.transmitting_ = false;
      self.TransmitHead();
    });
  }
  unreachable_since_ns_ = 0;
  ++taken_up_;
  send.taken_up = true;
  Transmit(send);
  TakeUp();
}

void SimQueuePair::Transmit(Send& send) {
  Packet packet = {.from = qp_num_,
                   .number = send.number,
                   .opcode = send.request.opcode,
                   .data = {},
                   .remote_address = send.request.remote_address,
                   .rkey = send.request.rkey,
                   .length = send.length};
  if (packet.opcode == Opcode::kRead) {
    ++reads_outstanding_;
  } else {
    for (const fabric::Sge& sge : send.sges) {
      packet.data.insert(packet.data.end(), sge.address, sge.address + sge.length);
    }
  }
  constexpr absl::string_view kNames[] = {"SEND of ", "READ of ", "WRITE of "};
  std::string what;
  if (network().history != nullptr) {
    const int name = packet.opcode == Opcode::kSend ? 0 : packet.opcode == Opcode::kRead ? 1 : 2;
    what = absl::StrCat(kNames[name], packet.length, " B");
  }
  ToPeer(std::move(what), [packet = std::move(packet)](SimQueuePair& peer) { peer.OnPacket(packet); });
  send.sent_ns = now_ns();
  WatchAnswers();
}

// What is never answered fails, whatever became of it.
void SimQueuePair::WatchAnswers() {
  if (watching_answers_ || sends_.empty() || !sends_.front().taken_up) return;
  watching_answers_ = true;
  const int64_t due_ns = sends_.front().sent_ns + faults().retry_ns;
  Later(std::max<int64_t>(due_ns - now_ns(), 0), [](SimQueuePair& self) {
    self.watching_answers_ = false;
    self.OnAnswersDue();
  });
}

void SimQueuePair::OnAnswersDue() {
  if (!working() || sends_.empty() || !sends_.front().taken_up) return;
  if (now_ns() - sends_.front().sent_ns >= faults().retry_ns) {
    const SimQueuePair* const peer = network().FindQueuePair(peer_);
    if (peer == nullptr || !peer->working() || !network().Reachable(host(), peer_host_)) {
      Trace(absl::StrCat("has no answer to work request ", sends_.front().number));
      return FailOldest();
    }
    // A peer that is well may be slow, with READs or for want of receives: it answers, or refuses, in the
    // end.
    sends_.front().sent_ns = now_ns();
  }
  WatchAnswers();
}

void SimQueuePair::OnAnswer(uint64_t number, CompletionStatus status) {
  if (!working() || sends_.empty() || number < sends_.front().number) return;
  if (status != CompletionStatus::kSuccess) return Fail(number, status);
  Send& send = sends_[number - sends_.front().number];
  send.done = true;
  if (send.request.opcode == Opcode::kRead) --reads_outstanding_;
  CompleteInOrder();
  TakeUp();
}

void SimQueuePair::OnTaken(uint64_t number) {
  if (sends_.empty() || number < sends_.front().number) return;
  for (MemoryGuard::Id& guard : sends_[number - sends_.front().number].guards) {
    ReleaseGuard(std::exchange(guard, 0), "a SEND");
  }
}

void SimQueuePair::OnReadData(uint64_t number, size_t offset, const std::vector<uint8_t>& data, bool last) {
  if (!working() || sends_.empty() || number < sends_.front().number) return;
  const Send& send = sends_[number - sends_.front().number];
  size_t skip = offset, done = 0;
  for (size_t i = 0; i < send.sges.size() && done < data.size(); ++i) {
    const fabric::Sge& sge = send.sges[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const size_t count = std::min(sge.length - skip, data.size() - done);
    network().memory_guard().FabricWrites(sge.address + skip, data.data() + done, count, send.guards[i]);
    done += count;
    skip = 0;
  }
  if (last) OnAnswer(number, CompletionStatus::kSuccess);
}

void SimQueuePair::CompleteInOrder() {
  while (!sends_.empty() && sends_.front().done) {
    Send& send = sends_.front();
    unproved_.push_back({send.number, send.request.wr_id, send.request.signaled, std::move(send.guards)});
    if (send.request.signaled) {
      PushSend(send.number, send.request.wr_id, send.request.opcode, CompletionStatus::kSuccess,
               faults().completion.Throw(dice()));
      for (Unproved& earlier : unproved_) earlier.will_be_proved = true;
    }
    sends_.pop_front();
    --taken_up_;
  }
}

void SimQueuePair::PushSend(uint64_t number, uint64_t wr_id, Opcode opcode, CompletionStatus status,
                            int64_t delay_ns) {
  last_send_completion_ns_ = std::max(last_send_completion_ns_, now_ns() + delay_ns);
  completion_queue_.PushAt(last_send_completion_ns_,
                           {{wr_id, qp_num_, status, opcode, 0}, [this, number] { Proved(number); }});
}

void SimQueuePair::Proved(uint64_t number) {
  while (!unproved_.empty() && unproved_.front().number <= number) {
    for (const MemoryGuard::Id guard : unproved_.front().guards)
      ReleaseGuard(guard, "a work request of the send queue");
    unproved_.pop_front();
    --posted_;
  }
}

void SimQueuePair::ReleaseGuard(MemoryGuard::Id guard, absl::string_view of) {
  const std::string found = network().memory_guard().Release(guard);
  if (!found.empty()) {
    network().Violation(absl::StrCat("host ", host(), ", queue pair ", qp_num_, ", ", of, ": ", found));
  }
}

// ---- Responder

void SimQueuePair::OnPacket(Packet packet) {
  if (!working() || refusing_) return;
  if (packet.from != peer_) return;
  inbound_.push_back(std::move(packet));
  ExecuteInbound();
}

void SimQueuePair::ExecuteInbound() {
  while (!inbound_.empty() && working() && !refusing_ && !rnr_waiting_) {
    const Packet& packet = inbound_.front();
    if (packet.opcode == Opcode::kSend && !ExecuteSend(packet)) return;
    CompletionStatus status = CompletionStatus::kSuccess;
    if (packet.opcode == Opcode::kWrite) {
      status = CheckAccess(packet, Access::kWrite);
      if (status == CompletionStatus::kSuccess) {
        network().memory_guard().FabricWrites(reinterpret_cast<uint8_t*>(packet.remote_address),
                                              packet.data.data(), packet.data.size(), 0);
      }
    }
    if (packet.opcode == Opcode::kRead) status = CheckAccess(packet, Access::kRead);
    if (status != CompletionStatus::kSuccess) refusing_ = true;
    answers_.push_back({std::move(inbound_.front()), status, 0});
    inbound_.pop_front();
    AnswerInOrder();
  }
}

// False: it waits for a receive, or was refused.
bool SimQueuePair::ExecuteSend(const Packet& packet) {
  if (receives_.empty()) {
    if (network().options().strict_receives) {
      network().Violation(
          absl::StrCat("queue pair ", qp_num_, " of host ", host(), " has no receive for a SEND"));
    }
    if (++rnr_tries_ > faults().rnr_retries) {
      refusing_ = true;
      rnr_tries_ = 0;
      answers_.push_back({packet, CompletionStatus::kRnrRetryExceeded, 0});
      inbound_.clear();
      AnswerInOrder();
      return false;
    }
    rnr_waiting_ = true;
    Later(faults().rnr_timer_ns, [](SimQueuePair& self) {
      self.rnr_waiting_ = false;
      self.ExecuteInbound();
    });
    return false;
  }
  rnr_tries_ = 0;
  const Receive receive = receives_.front();
  receives_.pop_front();
  if (packet.data.size() > receive.buffer.length) {
    refusing_ = true;
    PushReceive(receive, CompletionStatus::kLocalError, 0, faults().completion.Throw(dice()));
    answers_.push_back({packet, CompletionStatus::kRemoteInvalidRequest, 0});
    inbound_.clear();
    AnswerInOrder();
    return false;
  }
  network().memory_guard().FabricWrites(receive.buffer.address, packet.data.data(), packet.data.size(),
                                        receive.guard);
  if (SimQueuePair* const sender = network().FindQueuePair(packet.from); sender != nullptr) {
    sender->OnTaken(packet.number);
  }
  PushReceive(receive, CompletionStatus::kSuccess, static_cast<uint32_t>(packet.data.size()),
              faults().completion.Throw(dice()));
  return true;
}

void SimQueuePair::PushReceive(const Receive& receive, CompletionStatus status, uint32_t byte_len,
                               int64_t delay_ns) {
  last_receive_completion_ns_ = std::max(last_receive_completion_ns_, now_ns() + delay_ns);
  completion_queue_.PushAt(
      last_receive_completion_ns_,
      {{receive.wr_id, qp_num_, status, Opcode::kReceive, byte_len}, [this, guard = receive.guard] {
         ReleaseGuard(guard, "a receive");
         --receives_out_;
         has_received_ = true;
       }});
}

CompletionStatus SimQueuePair::CheckAccess(const Packet& packet, Access access) const {
  const auto it = grants_.find(packet.rkey);
  if (it == grants_.end()) return CompletionStatus::kRemoteAccessError;
  const Granted& grant = it->second;
  const uint64_t start = reinterpret_cast<uint64_t>(grant.range.address);
  const uint64_t offset = packet.remote_address - start;
  const bool inside = offset < grant.range.length && packet.length <= grant.range.length - offset;
  const bool in_force = grant.from_ns <= fabric_.network().NowNs();
  return inside && in_force && grant.access == access ? CompletionStatus::kSuccess
                                                      : CompletionStatus::kRemoteAccessError;
}

void SimQueuePair::AnswerInOrder() {
  while (!answers_.empty() && working() && !answering_) {
    Answer& answer = answers_.front();
    const uint64_t number = answer.packet.number;
    if (answer.status == CompletionStatus::kSuccess && answer.packet.opcode == Opcode::kRead) {
      answer.status = CheckAccess(answer.packet, Access::kRead);
    }
    if (answer.status != CompletionStatus::kSuccess) {
      ToPeer("a refusal",
             [number, status = answer.status](SimQueuePair& peer) { peer.OnAnswer(number, status); });
      Trace(absl::StrCat("refuses work request ", number, " of qp ", peer_));
      if (answer.status != CompletionStatus::kRnrRetryExceeded) return EnterError();
      answers_.clear();  // The responder of an RNR stays as it is.
      return;
    }
    if (answer.packet.opcode != Opcode::kRead) {
      ToPeer("", [number](SimQueuePair& peer) { peer.OnAnswer(number, CompletionStatus::kSuccess); });
      answers_.pop_front();
      continue;
    }
    const size_t count =
        std::min<size_t>(faults().read_chunk_bytes, answer.packet.length - answer.sent_bytes);
    const auto* const from =
        reinterpret_cast<const uint8_t*>(answer.packet.remote_address) + answer.sent_bytes;
    const bool last = answer.sent_bytes + count == answer.packet.length;
    ToPeer(last ? "the last of a READ" : "some of a READ",
           [number, offset = answer.sent_bytes, data = std::vector<uint8_t>(from, from + count),
            last](SimQueuePair& peer) { peer.OnReadData(number, offset, data, last); });
    answer.sent_bytes += count;
    if (last) {
      answers_.pop_front();
      continue;
    }
    answering_ = true;
    Later(faults().read_chunk_ns, [](SimQueuePair& self) {
      self.answering_ = false;
      self.AnswerInOrder();
    });
  }
}

// ---- Ending

void SimQueuePair::Fail(uint64_t number, CompletionStatus status) {
  if (!working()) return;
  // Answers come in order, so at a refusal there are none before it.
  while (!sends_.empty() && sends_.front().number < number) {
    Send& send = sends_.front();
    unproved_.push_back({send.number, send.request.wr_id, true, std::move(send.guards)});
    PushSend(send.number, send.request.wr_id, send.request.opcode, CompletionStatus::kFlushed, 0);
    sends_.pop_front();
  }
  if (!sends_.empty()) {
    Send& send = sends_.front();
    unproved_.push_back({send.number, send.request.wr_id, true, std::move(send.guards)});
    PushSend(send.number, send.request.wr_id, send.request.opcode, status, faults().completion.Throw(dice()));
    sends_.pop_front();
  }
  EnterError();
}

// Without a peer it is the oldest that fails.
void SimQueuePair::FailOldest() {
  if (!sends_.empty()) return Fail(sends_.front().number, CompletionStatus::kTransportRetryExceeded);
  EnterError();
}

void SimQueuePair::EnterError() {
  if (state_ == State::kError) return;
  Trace("is in error");
  state_ = State::kError;
  inbound_.clear();
  answers_.clear();
  // An unsignaled one that had succeeded comes back too: nothing later will prove it.
  for (Unproved& send : unproved_) {
    if (std::exchange(send.will_be_proved, true)) continue;
    PushSend(send.number, send.wr_id, Opcode::kSend, CompletionStatus::kFlushed,
             faults().flush.Throw(dice()));
  }
  for (Send& send : sends_) {
    unproved_.push_back({send.number, send.request.wr_id, true, std::move(send.guards)});
    PushSend(send.number, send.request.wr_id, send.request.opcode, CompletionStatus::kFlushed,
             faults().flush.Throw(dice()));
  }
  sends_.clear();
  taken_up_ = 0;
  for (const Receive& receive : receives_) {
    PushReceive(receive, CompletionStatus::kFlushed, 0, faults().flush.Throw(dice()));
  }
  receives_.clear();
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
  Tell([status](fabric::ConnectionHandler& handler) { handler.OnDisconnected(status); });
}

void SimQueuePair::DeviceRemoved() {
  if (!powered_ || disconnected_ || state_ == State::kIdle) return;
  const absl::Status status = absl::UnavailableError("IBV_EVENT_DEVICE_FATAL: the device is gone");
  if (state_ == State::kConnecting || state_ == State::kAccepting) return OnConnectFailed(status);
  EnterError();
  Tell([status](fabric::ConnectionHandler& handler) { handler.OnDisconnected(status); });
}

}  // namespace hawser::sim
