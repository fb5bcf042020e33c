#ifndef HAWSER_RPC_STATUS_H_
#define HAWSER_RPC_STATUS_H_

// Tries one replica after another, as long as none of them can have run the call:
//
//   for (const PagesStub& replica : replicas) {
//     auto call = replica.Write({.timeout = absl::Seconds(5)});
//     call.request().setNumber(number);
//     call.request().setPage(page);
//     status = call.Send().Wait().status();
//     if (!absl::IsUnavailable(status) || hawser::WasSent(status)) return status;
//   }

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/peer_text.h"  // EscapePeerText(), for programs that print what a peer sent.
#include "hawser/transport/wire/message.h"

namespace hawser {

// Whether the server may have run a call that failed. False: it has not, so the call can be repeated whatever
// its method does: it was not sent, or the server says that it has not called the handler, for example
// because it shuts down, serves no such method, its executor has dropped the handler, an interceptor or
// ServerOptions::authorize has refused the call, the request found no memory or was too large, or too many
// handlers run without a caller. Also true for a status that is not from a call.
bool WasSent(const absl::Status& status);

namespace internal {

// Whether a call was sent, and what this process was doing, is in the text of a status or, if its text does
// not say so, in a detail. The text of a status that a peer sent says nothing about this process's call.

// What is known of a call that has no answer. Values: of a byte.
enum class Sent : uint8_t {
  kNo,
  kYes,
  // Another thread was to send it, and may have: WasSent() is true.
  kPerhaps,
};

// The status of a call that the server did not answer: `code`, and a text with the name of its `method`, the
// address of its `peer`, `why` it failed, and whether it was sent. WasSent() returns the latter.
absl::Status CallError(absl::StatusCode code, absl::string_view method, absl::string_view peer,
                       absl::string_view why, Sent sent);

// The same without an address, for a mistake in the use of this library: the text crosses the wire if a
// handler returns it, so that the mistake is read where it is noticed. `why` has nothing that a peer must not
// learn.
absl::Status PublicCallError(absl::StatusCode code, absl::string_view method, absl::string_view why,
                             Sent sent);

// The text of `status` has addresses that this process's own callers should not see. EncodeStatus() sends a
// text made of `doing` ("calling kv.capnp:KeyValue.get") and the code instead.
void KeepTextHere(absl::Status& status, absl::string_view doing);

// Unimplemented: a request names no method that is served. The server knows no name for it, so the caller
// adds one: NameUnserved() turns such a `status` into an error of its call, and returns any other unchanged.
absl::Status UnservedError(absl::string_view text);
absl::Status NameUnserved(absl::Status status, absl::string_view method, absl::string_view peer);

// The detail that has the metadata of an error (rpc/metadata.h). Like the sent mark, it is about one call,
// and no further call's answer passes it on.
inline constexpr absl::string_view kMetadataUrl = "type.hawser/metadata";

// Sets what WasSent() returns.
void SetWasSent(absl::Status& status, Sent sent);

// Bounds on one status on the wire. The excess is left out; a cut message ends in "...".
inline constexpr size_t kStatusMessageMax = 16 << 10;
inline constexpr size_t kStatusDetailsMax = 32;            // Number of details.
inline constexpr size_t kStatusDetailBytesMax = 64 << 10;  // Sum of all of them.

// The part of an error that is sent when memory is short: its code, and up to `text_max` bytes of the text
// that EncodeStatus() writes. `status` is not OK.
absl::Status Shortened(const absl::Status& status, size_t text_max);

// Writes everything of `status` except the code into the body of `message`. The code goes into the envelope.
// Does not write what WasSent() and MetadataOf() read, which is about another call, nor a text that
// KeepTextHere() keeps. `refused`: the handler of the call was not run.
void EncodeStatus(const absl::Status& status, transport::OutgoingMessage& message, bool refused = false);

// `code` is not OK. Never OK; a malformed body costs the text, not the code. The text and the names of the
// details are escaped (EscapePeerText()): the peer chose them, and they reach terminals and logs. The values
// of the details are not. `refused`, if it is not null: whether the peer says that it has not run the method.
absl::Status DecodeStatus(absl::StatusCode code, transport::IncomingMessage& message,
                          bool* refused = nullptr);

}  // namespace internal
}  // namespace hawser

#endif  // HAWSER_RPC_STATUS_H_
