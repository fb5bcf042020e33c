#ifndef HAWSER_RPC_WIRE_BACKGROUND_H_
#define HAWSER_RPC_WIRE_BACKGROUND_H_

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "hawser/transport/poller/poller.h"

// Work that would block a poller, on other threads.
namespace hawser::internal {

// Runs `function` on a thread of its own: for rare work that may take seconds. It does not bound the number
// of these threads (Resolver bounds those that look up names). ResourceExhausted: the system has no thread
// left; `function` is destroyed.
absl::Status RunInBackground(absl::AnyInvocable<void()> function);

// Runs `function` on `poller` and waits until it has returned.
void RunAndWait(transport::Poller& poller, absl::AnyInvocable<void()> function);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_BACKGROUND_H_
