#ifndef HAWSER_RPC_EXCEPTIONS_H_
#define HAWSER_RPC_EXCEPTIONS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// Where exceptions end: Cap'n Proto throws on malformed messages, and so may the application's code that we
// call.
namespace hawser::internal {

// Runs `body`; what it throws comes back as a Status. See InvokeHandler() for which.
absl::Status CatchExceptions(absl::FunctionRef<absl::Status()> body);

// Likewise for a client that reads a reply: every kj::Exception is DataLoss.
absl::Status CatchMalformed(absl::FunctionRef<void()> body);

// Runs a callback of the application, which has nobody to return a Status to: what it throws is reported on
// stderr, with `what` and `whose` it was ("the callback of", "kv.capnp:KeyValue.get"), and is otherwise lost.
void CallUser(absl::string_view what, absl::string_view whose, absl::FunctionRef<void()> body);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_EXCEPTIONS_H_
