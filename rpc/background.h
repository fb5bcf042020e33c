#ifndef HAWSER_RPC_BACKGROUND_H_
#define HAWSER_RPC_BACKGROUND_H_

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/runtime.h"

// What would block a poller, done elsewhere.
namespace hawser::internal {

// Runs `function` on a thread of its own: for rare things that may take seconds. Nothing here bounds the
// number of such threads; names are looked up by a Resolver, which does. ResourceExhausted: the system has no
// thread left; `function` is destroyed.
absl::Status RunInBackground(absl::AnyInvocable<void()> function);

// Lets go of `runtime`, perhaps on one of its pollers, where its last owner must not go since their threads
// are joined then: there it is left to another thread, or to the next ReleaseRuntimesNow().
void ReleaseRuntime(std::shared_ptr<transport::Runtime> runtime);
// Not on a poller.
void ReleaseRuntimesNow();

// poller.Post(item), by a thread that holds nothing else which keeps `runtime`: what the item does may let go
// of the last other owner before Post() has returned.
void PostKeeping(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                 transport::MailboxItem* item);

// Runs `function` on `poller` and waits until it has returned.
void RunAndWait(transport::Poller& poller, absl::AnyInvocable<void()> function);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_BACKGROUND_H_
