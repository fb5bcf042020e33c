#include "hawser/tools/hawser/introspection.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/introspection.rpc.h"

namespace hawser::tool {
namespace {

using Results = introspection::Introspection::SnapshotResults;

absl::Status Explained(const absl::Status& status, absl::string_view peer) {
  // These name the call and the server already.
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return status;
  std::string why(status.message());
  if (status.code() == absl::StatusCode::kUnimplemented) {
    why =
        "the server has no introspection service. Start it with ServerOptions::introspection, which is "
        "kThisMachine by default, or update it";
  }
  return absl::Status(status.code(), absl::StrCat("cannot ask ", peer, " what it is doing: ", why));
}

}  // namespace

ChannelOptions ForSnapshots() {
  ChannelOptions options;
  options.connection.message_bytes_max = 32 << 20;
  options.read.traversal_factor = 2;  // It is read once.
  return options;
}

void FetchSnapshot(const std::shared_ptr<Channel>& channel,
                   std::function<void(absl::StatusOr<OwnSnapshot> snapshot)> then) {
  introspection::IntrospectionStub(channel).Snapshot().Send().Then(
      [then = std::move(then), peer = channel->peer_address()](absl::StatusOr<Reply<Results>> reply) {
        if (!reply.ok()) return then(Explained(reply.status(), peer));
        std::optional<OwnSnapshot> own;
        const absl::Status read =
            reply->Read([&](Results::Reader results) { own.emplace(results.getSnapshot()); });
        if (!read.ok()) return then(Explained(read, peer));
        then(*std::move(own));
      });
}

}  // namespace hawser::tool
