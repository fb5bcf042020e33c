// Calls of a stub whose channel is null: they end with the reason for that (wire/no_channel.h).

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/rpc/client/call_handle.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/wire/no_channel.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

// For a channel that is null, but not from ServerContext::peer(): the program's own mistake. Its calls end on
// the process's runtime for TCP, which every machine has.
NoChannel WithoutReason() {
  absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime =
      transport::Runtime::Default(transport::kFallbackScheme);
  HAWSER_CHECK(runtime.ok(),
               "a stub without a channel was called, and there is no poller to end the call on: ",
               absl::string_view(runtime.status().message()));
  transport::Poller& poller = (*runtime)->NextPoller();
  return {*std::move(runtime), &poller, "(no channel)",
          "the stub was made without a channel; did Channel::Connect() fail, and its status go unread, or "
          "was the stub "
          "moved from?"};
}

}  // namespace

CallHandle CallHandle::NewWithoutChannel(const std::shared_ptr<Channel>& null, const Method& method,
                                         const CallOptions& options) {
  const NoChannel* const known = WhyNull(null);
  NoChannel none = known != nullptr ? *known : WithoutReason();
  transport::PeerLog::Process().Line(
      LogSeverity::kWarning, method.name,
      absl::StrCat("calling ", method.name, " at ", none.peer_address, ": ", none.why));
  return New(ChannelCore::WithoutConnection(std::move(none)), method, options);
}

}  // namespace hawser::internal
