#ifndef HAWSER_MEASURE_VERBS_RAW_SERVER_H_
#define HAWSER_MEASURE_VERBS_RAW_SERVER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/base/peer_table.h"
#include "hawser/base/socket_address.h"
#include "hawser/measure/verbs/raw_loop.h"
#include "hawser/measure/verbs/raw_plan.h"
#include "hawser/measure/verbs/raw_queue_pair.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// The end of a raw queue pair that listens, and does what the plan of the other end says.
//
// It accepts one connection: the first that comes from the right host and brings the token. It rejects others
// without a reason. It holds at most RawPlan::kInFlightBytesMax + kBytesMax bytes, from the moment it
// accepts.
// Thread:   one at a time, except Stop().
// Lifetime: the destructor ends the connection.
class RawServer final : private fabric::ListenHandler {
 public:
  struct Options {
    SocketAddress address;  // Port 0: any.
    PeerHost host;          // Where the connection comes from.
    RawToken token = {};
    PollingMode polling = PollingMode::kAdaptive;
    absl::Duration accept_time = absl::Seconds(5);  // From Listen() until it is there.
  };

  // On the device of the runtime, but with no poller of it. The errors of fabric::Fabric::Listen().
  static absl::StatusOr<std::unique_ptr<RawServer>> Listen(std::shared_ptr<Runtime> runtime,
                                                           const Options& options);

  uint16_t port() const { return port_; }

  // Waits for the connection, and serves it until it ends; once. Never OK: Cancelled: Stop() was called.
  // DeadlineExceeded: the connection did not come. Unavailable: the client has disconnected. Others: the
  // client was wrong, or there is no memory.
  absl::Status Serve();

  // Ends Serve() soon. From any thread.
  void Stop() { loop_->Stop(); }

 private:
  RawServer(std::shared_ptr<Runtime> runtime, const Options& options, std::unique_ptr<RawLoop> loop)
      : runtime_(std::move(runtime)), options_(options), loop_(std::move(loop)) {}

  void OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) override;

  absl::Status ServeOne();
  absl::Status Accept();
  absl::Status ServeExchanges();
  absl::Status LendMemory();
  absl::Status ServeReads();

  const std::shared_ptr<Runtime> runtime_;
  const Options options_;
  const std::unique_ptr<RawLoop> loop_;
  uint16_t port_ = 0;
  RawPlan plan_;
  std::unique_ptr<fabric::Listener> listener_;
  std::unique_ptr<fabric::ConnectRequest> request_;  // The right one, until it is accepted.
  std::unique_ptr<RawQueuePair> queue_pair_;
};

}  // namespace hawser::transport

#endif  // HAWSER_MEASURE_VERBS_RAW_SERVER_H_
