#ifndef HAWSER_RPC_WIRE_MISPLACED_WAIT_H_
#define HAWSER_RPC_WIRE_MISPLACED_WAIT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hawser::internal {

// The error of a function that waits, called in a handler or callback that would wait for itself, or keep
// everything else on its poller waiting. FailedPrecondition: "WHAT was called in the handler of
// kv.capnp:KeyValue.getWHY". The handler may drop the error, or its caller be another program, so the log has
// a line (PeerLog: peers call handlers), which begins with what that thread was `doing`, if that is not
// empty, and may have addresses. The text of the error has none, so a handler may return it to its caller.
// Thread: any.
absl::Status MisplacedWait(absl::string_view what, absl::string_view why, absl::string_view doing = "");

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_MISPLACED_WAIT_H_
