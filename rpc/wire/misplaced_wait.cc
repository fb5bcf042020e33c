#include "hawser/rpc/wire/misplaced_wait.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/poller/called_out.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

absl::Status MisplacedWait(absl::string_view what, absl::string_view why, absl::string_view doing) {
  // Not known on an executor's thread.
  const std::optional<transport::CalledOut::Call> in = transport::Poller::CalledOutOnThisThread();
  const auto text = [&](const std::string& where) {
    return absl::StrCat(what, " was called in ", where, why);
  };
  transport::PeerLog::Process().Line(
      LogSeverity::kWarning, in.has_value() ? absl::string_view(in->whose) : what,
      absl::StrCat(doing, doing.empty() ? "" : ": ",
                   text(in.has_value() ? transport::DescribeWithId(*in) : "a handler")));
  return absl::FailedPreconditionError(
      text(in.has_value() ? transport::Describe(*in) : "a handler or callback"));
}

}  // namespace hawser::internal
