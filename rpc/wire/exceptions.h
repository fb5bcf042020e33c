#ifndef HAWSER_RPC_WIRE_EXCEPTIONS_H_
#define HAWSER_RPC_WIRE_EXCEPTIONS_H_

#include <kj/exception.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// Turns exceptions into statuses. Cap'n Proto throws on malformed messages, and code of the application may
// throw as well. Templates, so that a call that throws nothing pays nothing.
namespace hawser::internal {

// The status for the exception that is being handled, which `who` threw ("the handler"). The mapping is at
// InvokeHandler(). Its text has that of the exception: for the log of this process only.
absl::Status StatusOfException(absl::string_view who);
// The same for a peer: without the text of the exception, which may name what the peer must not know. Log
// that.
absl::Status StatusOfExceptionForPeer(absl::string_view who);
absl::Status StatusOfMalformed(const kj::Exception& exception);
// Throws what Cap'n Proto throws when reading a message goes beyond its traversal limit, and for a message
// that is malformed; `what` is for the log.
[[noreturn]] void ThrowTraversalLimit();
[[noreturn]] void ThrowMalformed(absl::string_view what);
void ReportException(absl::string_view what, absl::string_view whose);
// StatusOfExceptionForPeer() for the handler of `method`, which `peer` has called with the call `id`
// (ServerContext::call_id()). Also logs it, with its text. `answered`: it was thrown after the call was
// answered, so the status has no effect.
absl::Status StatusOfHandlersException(absl::string_view method, absl::string_view peer, absl::string_view id,
                                       bool answered);

// Runs `body`, which reads a reply at a client: a kj::Exception is DataLoss; ResourceExhausted if a limit of
// ReadLimits is met; InvalidArgument if `body` builds more than Cap'n Proto can hold.
template <typename Body>
absl::Status CatchMalformed(Body&& body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const kj::Exception& exception) {
    return StatusOfMalformed(exception);
  }
}

// Runs a callback of the application that cannot return a Status. Logs an exception, with `what` and `whose`
// ("the callback of", "kv.capnp:KeyValue.get"), and drops it.
template <typename Whose, typename Body>
void CallUser(const char* what, const Whose& whose, Body&& body) {
  try {
    body();
  } catch (...) {
    ReportException(what, whose);
  }
}

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_EXCEPTIONS_H_
