// How a TcpQueuePair is connected: Connect() and Accept(), until frames can pass.

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/check_connect.h"
#include "hawser/transport/fabric/tcp/connect_request.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/queue_pair.h"
#include "hawser/transport/fabric/tcp/socket.h"

namespace hawser::fabric {

absl::Status TcpQueuePair::Connect(const SocketAddress& address, absl::string_view private_data) {
  absl::Status allowed = CheckConnect(absl::StrCat("connect to ", address.ToString()),
                                      life().state() == State::kIdle, local_address_, address, private_data);
  if (!allowed.ok()) return allowed;
  const TcpFabricOptions& options = completion_queue().options();
  absl::StatusOr<UniqueFd> socket = OpenSocket(address.family(), options);
  if (!socket.ok()) {
    return absl::Status(socket.status().code(),
                        absl::StrCat("connect to ", address.ToString(), ": ", socket.status().message()));
  }
  Stream& stream = traffic_.stream();
  stream = Stream(*std::move(socket));
  PrepareForFrames(stream.fd(), options);
  life().set_peer_address(address);
  if (dialing_ == nullptr) dialing_ = std::make_unique<Dialing>(nullptr, std::string());
  life().Move(Event::kConnect);
  const Dialing::Progress progress =
      dialing_->Start(stream, local_address_, address, traffic_.send_queue().read_depth(), private_data);
  if (progress == Dialing::Progress::kFailed) {
    Advance(progress);
    return absl::OkStatus();
  }
  local_address_ = LocalAddress(stream.fd());
  completion_queue().Watch(*this, stream.fd(), EPOLLOUT);
  return absl::OkStatus();
}

void TcpQueuePair::ContinueToDial() {
  Stream& stream = traffic_.stream();
  if (life().state() == State::kConnecting) {
    if (!Advance(dialing_->FinishConnect(stream))) return;
    local_address_ = LocalAddress(stream.fd());
    life().Move(Event::kConnected);
  }
  if (life().state() == State::kSecuring) {
    if (!Advance(dialing_->Secure(stream, completion_queue().options()))) return;
    if (stream.tls() != nullptr) peer_identity_ = stream.tls()->peer_identity();
    life().Move(Event::kSecured);
    if (Advance(dialing_->Greet(stream))) traffic_.UpdateWatch();
    return;
  }
  if (stream.has_unsent() && stream.Flush()) traffic_.UpdateWatch();
  if (!Advance(dialing_->ReadAnswer(stream))) return;
  const Greeting& answer = dialing_->answer();
  traffic_.Start(answer.read_depth, answer.flags, dialing_->private_data());
  dialing_.reset();
}

bool TcpQueuePair::Advance(Dialing::Progress progress) {
  switch (progress) {
    case Dialing::Progress::kWaits:
      return false;
    case Dialing::Progress::kWantsRead:
      completion_queue().ChangeWatch(*this, traffic_.stream().fd(), EPOLLIN | EPOLLRDHUP);
      return false;
    case Dialing::Progress::kWantsWrite:
      completion_queue().ChangeWatch(*this, traffic_.stream().fd(), EPOLLOUT);
      return false;
    case Dialing::Progress::kFailed:
      traffic_.Fail(dialing_->failure(), dialing_->rejection());
      return false;
    case Dialing::Progress::kDone:
      break;
  }
  return true;
}

absl::Status TcpQueuePair::Accept(ConnectRequest& request, absl::string_view private_data) {
  absl::Status allowed = CheckAccept(absl::StrCat("accept ", request.peer_address().ToString()),
                                     life().state() == State::kIdle, private_data);
  if (!allowed.ok()) return allowed;
  auto* const tcp_request = dynamic_cast<TcpConnectRequest*>(&request);
  if (tcp_request == nullptr) return RequestOfAnotherFabric(request);
  Stream& stream = traffic_.stream();
  stream = tcp_request->TakeStream();
  if (!stream.is_open()) return absl::FailedPreconditionError("Accept: the request was rejected before");
  PrepareForFrames(stream.fd(), completion_queue().options());
  life().set_peer_address(tcp_request->peer_address());
  peer_identity_ = tcp_request->peer_identity();
  local_address_ = LocalAddress(stream.fd());
  life().Move(Event::kAccept);
  const uint32_t read_depth = std::min(tcp_request->read_depth(), traffic_.send_queue().read_depth());
  const uint8_t flags = tcp_request->flags() & kTakenFrames;
  const std::string answer = EncodeGreeting(GreetingKind::kAccept, read_depth, private_data, flags);
  completion_queue().Watch(*this, stream.fd(), EPOLLIN);
  if (!stream.SendAll(answer.data(), answer.size())) {
    const int error = errno;
    traffic_.Fail(absl::UnavailableError(
        absl::StrCat("accept ", life().Peer(), ": it went away before the answer: ", DescribeErrno(error))));
    return absl::OkStatus();
  }
  traffic_.Start(read_depth, flags, {});
  return absl::OkStatus();
}

void TcpConnectRequest::Reject(absl::string_view private_data) {
  if (!stream_.is_open() || fork_mark_.in_child()) return;
  const std::string answer =
      EncodeGreeting(GreetingKind::kReject, 0, private_data.substr(0, kRejectPrivateDataMax), reject_flags_);
  stream_.SendAll(answer.data(), answer.size());
  if (stream_.tls() != nullptr) stream_.tls()->End();
  EndAndClose(stream_.EndTls());
}

}  // namespace hawser::fabric
