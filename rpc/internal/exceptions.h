#ifndef HAWSER_RPC_INTERNAL_EXCEPTIONS_H_
#define HAWSER_RPC_INTERNAL_EXCEPTIONS_H_

#include <kj/exception.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// Where exceptions end: Cap'n Proto throws on malformed messages, and so may the application's code that we
// call. Templates, so that a call that throws nothing pays nothing.
namespace hawser::internal {

// Of the exception that is being handled, which `who` threw ("the handler"). See InvokeHandler() for which
// becomes what.
absl::Status StatusOfException(absl::string_view who);
absl::Status StatusOfMalformed(const kj::Exception& exception);
void ReportException(absl::string_view what, absl::string_view whose);
// As StatusOfException(), of the handler of `method`, which `peer` has called. It is logged, too.
absl::Status StatusOfHandlersException(absl::string_view method, absl::string_view peer);

// Runs `body`, with which a client reads a reply: a kj::Exception is DataLoss; ResourceExhausted if a limit of
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

// Runs a callback of the application, which can return no Status: what it throws is logged, with `what` and
// `whose` it was ("the callback of", "kv.capnp:KeyValue.get"), and is otherwise lost.
template <typename Whose, typename Body>
void CallUser(const char* what, const Whose& whose, Body&& body) {
  try {
    body();
  } catch (...) {
    ReportException(what, whose);
  }
}

}  // namespace hawser::internal

#endif  // HAWSER_RPC_INTERNAL_EXCEPTIONS_H_
