#include "hawser/transport/fabric/tcp/dialing.h"

#include <sys/socket.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/tcp/socket.h"

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

std::string Dialing::Who() const { return absl::StrCat("connect to ", peer_.ToString(), ": "); }

Dialing::Progress Dialing::Start(Stream& stream, const SocketAddress& local, const SocketAddress& peer,
                                 uint32_t read_depth, absl::string_view private_data) {
  peer_ = peer;
  read_depth_ = read_depth;
  greeting_to_send_ = EncodeGreeting(GreetingKind::kConnect, read_depth, private_data, kTakenFrames);
  if (local.family() != AF_UNSPEC && BindToConnect(stream.fd(), local) != 0) {
    const int error = errno;
    return Fail(absl::UnavailableError(absl::StrCat(
        "connect to ", peer_.ToString(), " from ", local.ToString(), ": bind(): ", DescribeErrno(error),
        error == EADDRNOTAVAIL ? ": no interface of this machine has that address" : "")));
  }
  if (connect(stream.fd(), peer.get(), peer.length_bytes()) != 0 && errno != EINPROGRESS) {
    return FailToConnect(errno);
  }
  return Progress::kWantsWrite;
}

Dialing::Progress Dialing::FinishConnect(Stream& stream) {
  int error = 0;
  socklen_t length_bytes = sizeof(error);
  getsockopt(stream.fd(), SOL_SOCKET, SO_ERROR, &error, &length_bytes);
  if (error == 0 && PeerAddress(stream.fd()).family() == AF_UNSPEC) return Progress::kWaits;
  return error != 0 ? FailToConnect(error) : Progress::kDone;
}

Dialing::Progress Dialing::Secure(Stream& stream, const TcpFabricOptions& options) {
  if (tls_ == nullptr) return Progress::kDone;
  if (stream.tls() == nullptr) {
    absl::StatusOr<std::unique_ptr<tls::Session>> session =
        tls_->NewSession(tls::Side::kClient, stream.fd(), tls_host_, peer_.ToString());
    if (!session.ok()) {
      return Fail(absl::Status(session.status().code(), absl::StrCat(Who(), session.status().message())));
    }
    stream.StartTls(*std::move(session), options);
  }
  switch (stream.tls()->Handshake()) {
    case tls::Session::Progress::kWantRead:
      return Progress::kWantsRead;
    case tls::Session::Progress::kWantWrite:
      return Progress::kWantsWrite;
    case tls::Session::Progress::kFailed:
      break;
    case tls::Session::Progress::kDone:
      return Progress::kDone;
  }
  return FailToSecure(stream);
}

Dialing::Progress Dialing::Greet(Stream& stream) {
  if (stream.SendAll(greeting_to_send_.data(), greeting_to_send_.size())) return Progress::kDone;
  if (stream.tls() != nullptr && !stream.tls()->error().ok()) return FailToSecure(stream);
  return FailToConnect(errno);
}

Dialing::Progress Dialing::FailToConnect(int error) {
  return Fail(absl::UnavailableError(absl::StrCat(Who(), DescribeErrno(error), LikelyCause(error))));
}

Dialing::Progress Dialing::FailToSecure(const Stream& stream) {
  const absl::Status& error = stream.tls()->error();
  absl::Status why(error.code(), absl::StrCat(Who(), error.message()));
  CopyViolation(error, why);
  return Fail(std::move(why));
}

Dialing::Progress Dialing::ReadAnswer(Stream& stream) {
  const GreetingReader::Result result = greeting_.Read(stream);
  const Greeting& greeting = greeting_.greeting();
  switch (result) {
    case GreetingReader::Result::kIncomplete:
      return Progress::kWaits;
    case GreetingReader::Result::kClosed:
      // A server finds out only after its client's handshake whether it accepts the client's certificate.
      if (stream.tls() != nullptr && ViolationOf(stream.tls()->error()).has_value()) {
        return FailToSecure(stream);
      }
      return Fail(absl::UnavailableError(
          absl::StrCat(Who(), "it closed the connection without an answer",
                       greeting_.error() != 0 ? absl::StrCat(": ", DescribeErrno(greeting_.error())) : "",
                       ": it is overloaded, ending, or no Hawser server")));
    case GreetingReader::Result::kNotHawser:
      return Fail(absl::UnavailableError(
          absl::StrCat(Who(), "what listens there is no Hawser server on a TCP fabric; it answered \"",
                       absl::CHexEscape(greeting_.bytes()), "\"")));
    case GreetingReader::Result::kMalformed:
      return Fail(absl::UnavailableError(
          greeting.version != kGreetingVersion
              ? absl::StrCat(Who(), "it speaks version ", greeting.version,
                             " of the TCP fabric's protocol, we speak version ", kGreetingVersion)
              : absl::StrCat(Who(), "malformed answer: kind ", static_cast<int>(greeting.kind), ", ",
                             greeting.private_data_bytes, " bytes of private data")));
    case GreetingReader::Result::kComplete:
      break;
  }
  switch (greeting.kind) {
    case GreetingKind::kConnect:
      // If the kernel chooses the destination port as the local port, too, the socket connects to itself
      // (simultaneous open).
      return Fail(
          absl::UnavailableError(absl::StrCat(Who(), "it asked to connect too: nothing listens there")));
    case GreetingKind::kReject:
      if (greeting.flags & kNeedsTls) {
        return Fail(absl::UnauthenticatedError(absl::StrCat(
            Who(), "it speaks TLS only, and this side has no credentials: see ChannelOptions::credentials")));
      }
      is_rejected_ = true;
      return Fail(absl::PermissionDeniedError(absl::StrCat(Who(), "rejected")));
    case GreetingKind::kAccept:
      break;
  }
  if (greeting.read_depth > read_depth_ || (greeting.read_depth == 0 && read_depth_ != 0)) {
    return Fail(
        absl::UnavailableError(absl::StrCat(Who(), "malformed answer: a READ depth of ", greeting.read_depth,
                                            ", where 1 to ", read_depth_, " could be agreed")));
  }
  return Progress::kDone;
}

}  // namespace hawser::fabric
