#ifndef HAWSER_MEASURE_VERBS_RAW_CLIENT_H_
#define HAWSER_MEASURE_VERBS_RAW_CLIENT_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/base/socket_address.h"
#include "hawser/measure/verbs/raw_loop.h"
#include "hawser/measure/verbs/raw_plan.h"
#include "hawser/measure/verbs/raw_queue_pair.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// The end of a raw queue pair that connects to a RawServer, and measures.
// Thread:   one. A thread of the caller's: every method blocks.
// Failure:  after the first failure all methods fail.
class RawClient {
 public:
  struct Options {
    RawToken token = {};
    PollingMode polling = PollingMode::kAdaptive;
    absl::Duration patience = absl::Seconds(5);  // With a server that is silent.
  };
  // How long a run goes on: until there were so many, or so much time has passed.
  struct Extent {
    int64_t count = std::numeric_limits<int64_t>::max() / 2;
    absl::Duration time = absl::InfiniteDuration();
  };
  // What it came to.
  struct Ran {
    int64_t count = 0;
    absl::Duration time;
  };

  // On the device of the runtime, but with no poller of it. InvalidArgument: RawPlan::Check().
  // PermissionDenied: the server rejected, perhaps with a reason. DeadlineExceeded, Unavailable: it does not
  // answer.
  static absl::StatusOr<std::unique_ptr<RawClient>> Connect(std::shared_ptr<Runtime> runtime,
                                                            const SocketAddress& to, const RawPlan& plan,
                                                            const Options& options);

  // RawPlan::kExchange: one request and its answer; or as many of them in flight as the plan says.
  absl::Status ExchangeOne();
  absl::StatusOr<Ran> Exchange(const Extent& extent);

  // The other kinds: so many one-sided operations in flight. If the server READs, it says how many there
  // were.
  absl::StatusOr<Ran> Operate(const Extent& extent);
  // One operation of this end.
  absl::Status OperateOne();

 private:
  RawClient(std::shared_ptr<Runtime> runtime, const RawPlan& plan, const Options& options,
            std::unique_ptr<RawLoop> loop)
      : runtime_(std::move(runtime)), plan_(plan), patience_(options.patience), loop_(std::move(loop)) {}

  absl::Status Begin();

  const std::shared_ptr<Runtime> runtime_;
  const RawPlan plan_;
  const absl::Duration patience_;
  const std::unique_ptr<RawLoop> loop_;
  std::unique_ptr<RawQueuePair> queue_pair_;
  fabric::Granted granted_;  // What is reached, by the end that does not reach it.
};

}  // namespace hawser::transport

#endif  // HAWSER_MEASURE_VERBS_RAW_CLIENT_H_
