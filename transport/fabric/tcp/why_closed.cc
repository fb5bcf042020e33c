#include "hawser/transport/fabric/tcp/why_closed.h"

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/peer_text.h"

namespace hawser::fabric {

absl::Status WhyClosed(const TcpQueuePairLife& life, const Stream& stream, const FrameReader& reader,
                       const FrameWriter& writer, absl::string_view refused, Violation violation) {
  const std::string farewell = EscapePeerText(reader.farewell());
  if (!farewell.empty()) {
    return absl::UnavailableError(
        absl::StrCat("peer ", life.Peer(), " closed the connection, and says why: ", farewell));
  }
  if (stream.tls() != nullptr &&
      (hawser::ViolationOf(stream.tls()->error()).has_value() || reader.error() == EPROTO)) {
    const absl::Status& why = stream.tls()->error();
    absl::Status status(why.code(), absl::StrCat("peer ", life.Peer(), ": ", why.message()));
    CopyViolation(why, status);
    return status;
  }
  const int error = reader.error() != 0 ? reader.error() : writer.error();
  absl::Status why = absl::UnavailableError(absl::StrCat(
      "peer ", life.Peer(),
      error == 0 ? " closed the connection: it disconnected, or its process ended"
                 : absl::StrCat(" is lost: ", DescribeErrno(error)),
      reader.in_the_middle_of_a_frame() ? ", in the middle of a frame" : "",
      error == ETIMEDOUT ? ": its host is down, frozen or cut off" : "",
      life.state() == TcpQueuePairLife::State::kRefusing ? absl::StrCat(", after it was refused: ", refused)
                                                         : ""));
  if (life.state() == TcpQueuePairLife::State::kRefusing) {
    SetViolation(why, violation);
  } else if ((error == 0 || error == ECONNRESET || error == EPIPE) && !reader.in_the_middle_of_a_frame()) {
    // A system resets the connections of a program that closes its socket, or ends, with unread bytes.
    SetPeersEnd(why);
  }
  return why;
}

}  // namespace hawser::fabric
