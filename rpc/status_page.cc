#include "hawser/rpc/status_page.h"

#include <utility>

#include "absl/time/clock.h"
#include "hawser/rpc/server/process_snapshot.h"

namespace hawser {

absl::StatusOr<std::unique_ptr<observe::StatusServer>> StartStatusPage(absl::string_view address,
                                                                       OwnMetrics metrics) {
  observe::StatusServer::Options options;
  options.state = [] { return observe::wire::Server::State::SERVING; };
  options.metrics = std::move(metrics);
  return observe::StatusServer::Start(
      address,
      [](observe::wire::Snapshot::Builder snapshot) {
        snapshot.setTakenUnixNs(absl::GetCurrentTimeNanos());
        internal::FillInOfProcess(snapshot);
      },
      options);
}

}  // namespace hawser
