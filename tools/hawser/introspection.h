#ifndef HAWSER_TOOLS_HAWSER_INTROSPECTION_H_
#define HAWSER_TOOLS_HAWSER_INTROSPECTION_H_

#include <capnp/message.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/options.h"
#include "hawser/tools/hawser/command.h"

namespace hawser::tool {

// A snapshot that this process owns, well-formed whatever the server sent. Its texts are the server's: escape
// them.
class OwnSnapshot {
 public:
  // Throws kj::Exception if `snapshot` is malformed.
  explicit OwnSnapshot(observe::wire::Snapshot::Reader snapshot) { message_->setRoot(snapshot); }
  observe::wire::Snapshot::Reader Get() const {
    return message_->getRoot<observe::wire::Snapshot>().asReader();
  }

 private:
  std::unique_ptr<capnp::MallocMessageBuilder> message_ = std::make_unique<capnp::MallocMessageBuilder>();
};

// The options of a channel that fetches snapshots. They have bounds, so that a server makes this process hold
// no more than some 100 MB.
ChannelOptions ForSnapshots();

// `then` gets the snapshot, or why there is none: it says what was asked of which server and what to do. It
// runs as a callback of PendingCall::Then().
void FetchSnapshot(const std::shared_ptr<Channel>& channel,
                   std::function<void(absl::StatusOr<OwnSnapshot> snapshot)> then);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_INTROSPECTION_H_
