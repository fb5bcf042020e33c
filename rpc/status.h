#ifndef HAWSER_RPC_STATUS_H_
#define HAWSER_RPC_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/peer_text.h"  // EscapePeerText(), for programs that print what a peer sent.
#include "hawser/transport/message.h"

namespace hawser {

// Of a call that failed: whether the server may have run it. False: it has not, so the call can be repeated
// whatever its method does. True for a status that comes from elsewhere, too.
bool WasSent(const absl::Status& status);

namespace internal {

// Why a call failed that the server did not answer: `code`, and a text made of the name of its `method`, the
// address of its `peer`, `why` it failed, and whether it was sent. WasSent() tells the latter.
absl::Status CallError(absl::StatusCode code, absl::string_view method, absl::string_view peer,
                       absl::string_view why, bool sent);

// The text of `status` has addresses, which are not for those that this process answers: EncodeStatus() sends
// what `doing` ("calling kv.capnp:KeyValue.get") and the code say in its place.
void KeepTextHere(absl::Status& status, absl::string_view doing);

// Unimplemented: a request names no method that is served. The answering side knows no name for it, so the
// caller adds that: NameUnserved() makes an error of its call of `status`, if it is one of these.
absl::Status UnservedError(absl::string_view text);
absl::Status NameUnserved(absl::Status status, absl::string_view method, absl::string_view peer);

// What WasSent() then says.
void SetWasSent(absl::Status& status, bool sent);

// Bounds on what crosses the wire of one status. What is over is left out; a cut message ends in "...".
inline constexpr size_t kStatusMessageMax = 16 << 10;
inline constexpr size_t kStatusDetailsMax = 32;            // Number of details.
inline constexpr size_t kStatusDetailBytesMax = 64 << 10;  // Of all of them.

// Writes everything of `status` except the code into the body of `message`. The code goes into the envelope.
// What WasSent() reads stays behind: it speaks of another call. So does a text that KeepTextHere() keeps.
void EncodeStatus(const absl::Status& status, transport::OutgoingMessage& message);

// `code` is not OK. Never OK; a malformed body costs the text, not the code. The text and the names of the
// details are escaped (EscapePeerText()): they are the peer's, and end on terminals and in logs. The values
// of the details are not.
absl::Status DecodeStatus(absl::StatusCode code, transport::IncomingMessage& message);

}  // namespace internal
}  // namespace hawser

#endif  // HAWSER_RPC_STATUS_H_
