// How a TcpQueuePair is connected: Connect() and Accept(), until frames can pass.

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/check_connect.h"
#include "hawser/transport/fabric/tcp/connect_request.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/queue_pair.h"

namespace hawser::fabric {
namespace {

// What an errno of connect(2) most likely means.
const char* LikelyCause(int error) {
  switch (error) {
    case ECONNREFUSED:
      return ": nothing listens there";
    case ETIMEDOUT:
      return ": the host is down, or a firewall drops what is sent to it";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return ": no route leads there, or the host is down";
    case EADDRNOTAVAIL:
      return ": no local address or port is left to connect from";
    case EACCES:
    case EPERM:
      return ": a firewall rule of this machine forbids it";
    default:
      return "";
  }
}

}  // namespace

absl::Status TcpQueuePair::Connect(const SocketAddress& address, absl::string_view private_data) {
  absl::Status allowed = CheckConnect(absl::StrCat("connect to ", address.ToString()), state_ == State::kIdle,
                                      local_address_, address, private_data);
  if (!allowed.ok()) return allowed;
  const bool bound = local_address_.family() != AF_UNSPEC;
  const TcpFabricOptions& options = completion_queue_.options();
  absl::StatusOr<UniqueFd> socket = OpenSocket(address.family(), options);
  if (!socket.ok()) {
    return absl::Status(socket.status().code(),
                        absl::StrCat("connect to ", address.ToString(), ": ", socket.status().message()));
  }
  stream_ = Stream(*std::move(socket));
  PrepareForFrames(stream_.fd(), options);
  peer_address_ = address;
  greeting_ = std::make_unique<GreetingReader>(kAcceptPrivateDataMax);
  greeting_to_send_ =
      EncodeGreeting(GreetingKind::kConnect, send_queue_.read_depth(), private_data, kTakesPushes);
  Move(Event::kConnect);
  if (bound && BindToConnect(stream_.fd(), local_address_) != 0) {
    const int error = errno;
    Fail(absl::UnavailableError(absl::StrCat(
        "connect to ", Peer(), " from ", local_address_.ToString(), ": bind(): ", DescribeErrno(error),
        error == EADDRNOTAVAIL ? ": no interface of this machine has that address" : "")));
    return absl::OkStatus();
  }
  if (connect(stream_.fd(), address.get(), address.length_bytes()) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    Fail(absl::UnavailableError(
        absl::StrCat("connect to ", Peer(), ": ", DescribeErrno(error), LikelyCause(error))));
    return absl::OkStatus();
  }
  local_address_ = LocalAddress(stream_.fd());
  completion_queue_.Watch(*this, stream_.fd(), EPOLLOUT);
  return absl::OkStatus();
}

void TcpQueuePair::FinishConnect() {
  int error = 0;
  socklen_t length_bytes = sizeof(error);
  getsockopt(stream_.fd(), SOL_SOCKET, SO_ERROR, &error, &length_bytes);
  if (error == 0 && PeerAddress(stream_.fd()).family() == AF_UNSPEC) return;  // Not connected yet.
  if (error != 0) return FailToConnect(error);
  local_address_ = LocalAddress(stream_.fd());
  Move(Event::kConnected);
  if (tls_ == nullptr) return Greet();
  absl::StatusOr<std::unique_ptr<tls::Session>> session =
      tls_->NewSession(tls::Side::kClient, stream_.fd(), tls_host_, Peer());
  if (!session.ok()) {
    return Fail(absl::Status(session.status().code(),
                             absl::StrCat("connect to ", Peer(), ": ", session.status().message())));
  }
  stream_.StartTls(*std::move(session), completion_queue_.options());
  Secure();
}

void TcpQueuePair::Secure() {
  tls::Session& session = *stream_.tls();
  switch (session.Handshake()) {
    case tls::Session::Progress::kWantRead:
      return completion_queue_.ChangeWatch(*this, stream_.fd(), EPOLLIN | EPOLLRDHUP);
    case tls::Session::Progress::kWantWrite:
      return completion_queue_.ChangeWatch(*this, stream_.fd(), EPOLLOUT);
    case tls::Session::Progress::kFailed:
      return FailToSecure();
    case tls::Session::Progress::kDone:
      peer_identity_ = session.peer_identity();
      return Greet();
  }
}

void TcpQueuePair::Greet() {
  Move(Event::kSecured);
  if (!stream_.SendAll(greeting_to_send_.data(), greeting_to_send_.size())) {
    if (stream_.tls() != nullptr && !stream_.tls()->error().ok()) return FailToSecure();
    return FailToConnect(errno);
  }
  UpdateWatch();
}

void TcpQueuePair::FailToConnect(int error) {
  Fail(absl::UnavailableError(
      absl::StrCat("connect to ", Peer(), ": ", DescribeErrno(error), LikelyCause(error))));
}

void TcpQueuePair::FailToSecure() {
  const absl::Status& error = stream_.tls()->error();
  absl::Status why(error.code(), absl::StrCat("connect to ", Peer(), ": ", error.message()));
  CopyViolation(error, why);
  Fail(std::move(why));
}

void TcpQueuePair::ReadGreeting() {
  const GreetingReader::Result result = greeting_->Read(stream_);
  const Greeting& greeting = greeting_->greeting();
  const std::string who = absl::StrCat("connect to ", Peer(), ": ");
  switch (result) {
    case GreetingReader::Result::kIncomplete:
      return;
    case GreetingReader::Result::kClosed:
      // A server finds out only after its client's handshake whether it accepts the client's certificate.
      if (stream_.tls() != nullptr && ViolationOf(stream_.tls()->error()).has_value()) return FailToSecure();
      Fail(absl::UnavailableError(
          absl::StrCat(who, "it closed the connection without an answer",
                       greeting_->error() != 0 ? absl::StrCat(": ", DescribeErrno(greeting_->error())) : "",
                       ": it is overloaded, ending, or no Hawser server")));
      return;
    case GreetingReader::Result::kNotHawser:
      Fail(absl::UnavailableError(
          absl::StrCat(who, "what listens there is no Hawser server on a TCP fabric; it answered \"",
                       absl::CHexEscape(greeting_->bytes()), "\"")));
      return;
    case GreetingReader::Result::kMalformed:
      Fail(absl::UnavailableError(
          greeting.version != kGreetingVersion
              ? absl::StrCat(who, "it speaks version ", greeting.version,
                             " of the TCP fabric's protocol, we speak version ", kGreetingVersion)
              : absl::StrCat(who, "malformed answer: kind ", static_cast<int>(greeting.kind), ", ",
                             greeting.private_data_bytes, " bytes of private data")));
      return;
    case GreetingReader::Result::kComplete:
      break;
  }
  switch (greeting.kind) {
    case GreetingKind::kConnect:
      // If the kernel chooses the destination port as the local port, too, the socket connects to itself
      // (simultaneous open).
      Fail(absl::UnavailableError(absl::StrCat(who, "it asked to connect too: nothing listens there")));
      return;
    case GreetingKind::kReject:
      if (greeting.flags & kNeedsTls) {
        Fail(absl::UnauthenticatedError(absl::StrCat(
            who, "it speaks TLS only, and this side has no credentials: see ChannelOptions::credentials")));
        return;
      }
      Fail(absl::PermissionDeniedError(absl::StrCat(who, "rejected")), greeting_->private_data());
      return;
    case GreetingKind::kAccept:
      break;
  }
  const uint32_t offered = send_queue_.read_depth();
  if (greeting.read_depth > offered || (greeting.read_depth == 0 && offered != 0)) {
    Fail(absl::UnavailableError(absl::StrCat(who, "malformed answer: a READ depth of ", greeting.read_depth,
                                             ", where 1 to ", offered, " could be agreed")));
    return;
  }
  Establish(greeting.read_depth, greeting.flags, greeting_->private_data());
}

absl::Status TcpQueuePair::Accept(ConnectRequest& request, absl::string_view private_data) {
  absl::Status allowed = CheckAccept(absl::StrCat("accept ", request.peer_address().ToString()),
                                     state_ == State::kIdle, private_data);
  if (!allowed.ok()) return allowed;
  auto* const tcp_request = dynamic_cast<TcpConnectRequest*>(&request);
  if (tcp_request == nullptr) return RequestOfAnotherFabric(request);
  stream_ = tcp_request->TakeStream();
  if (!stream_.is_open()) return absl::FailedPreconditionError("Accept: the request was rejected before");
  PrepareForFrames(stream_.fd(), completion_queue_.options());
  peer_address_ = tcp_request->peer_address();
  peer_identity_ = tcp_request->peer_identity();
  local_address_ = LocalAddress(stream_.fd());
  Move(Event::kAccept);
  const uint32_t read_depth = std::min(tcp_request->read_depth(), send_queue_.read_depth());
  const uint8_t flags = tcp_request->flags() & kTakesPushes;
  const std::string answer = EncodeGreeting(GreetingKind::kAccept, read_depth, private_data, flags);
  completion_queue_.Watch(*this, stream_.fd(), EPOLLIN);
  if (!stream_.SendAll(answer.data(), answer.size())) {
    const int error = errno;
    Fail(absl::UnavailableError(
        absl::StrCat("accept ", Peer(), ": it went away before the answer: ", DescribeErrno(error))));
    return absl::OkStatus();
  }
  Establish(read_depth, flags, {});
  return absl::OkStatus();
}

void TcpQueuePair::Establish(uint32_t read_depth, uint8_t flags, absl::string_view private_data) {
  pushes_ = (flags & kTakesPushes) != 0;
  reader_.set_takes_pushes(pushes_);
  send_queue_.set_read_depth(read_depth);
  receive_queue_.set_read_depth(read_depth);
  Move(Event::kAgreed);
  news().established = true;
  news().private_data = std::string(private_data);
  greeting_.reset();
  greeting_to_send_ = std::string();
  MoveToKernel();
  UpdateWatch();
  completion_queue_.StartCarrying(*this);
  completion_queue_.Schedule(*this);
  if (stream_.tls() == nullptr) return;
  if (stream_.has_unsent()) Transmit(/*with_answers=*/false);
  ReceiveSoon();
}

void TcpQueuePair::MoveToKernel() {
  tls::Session* const session = stream_.tls();
  if (session == nullptr) return;
  session->MoveToKernel();
  TcpFabricCounters* const counters = completion_queue_.options().counters;
  if (counters == nullptr) return;
  counters->kernel_tls_sends.fetch_add(session->sends_in_kernel(), std::memory_order_relaxed);
  counters->kernel_tls_receives.fetch_add(session->receives_in_kernel(), std::memory_order_relaxed);
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
