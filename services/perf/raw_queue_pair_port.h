#ifndef HAWSER_SERVICES_PERF_RAW_QUEUE_PAIR_PORT_H_
#define HAWSER_SERVICES_PERF_RAW_QUEUE_PAIR_PORT_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "hawser/measure/verbs/raw_server.h"
#include "hawser/services/perf/raw_port.h"
#include "hawser/transport/runtime.h"

namespace hawser::internal {

// A raw port of the network of a runtime: the connection is a queue pair with nothing above it.
class RawQueuePairPort final : public RawPort {
 public:
  // ResourceExhausted: the system has no thread for it. Or the error of listening, with the address.
  static absl::StatusOr<std::unique_ptr<RawPort>> Open(const Options& options,
                                                       std::shared_ptr<transport::Runtime> runtime,
                                                       std::function<void()> on_end);
  ~RawQueuePairPort() override;

  void Stop() override { server_->Stop(); }

 private:
  RawQueuePairPort(const Options& options, std::unique_ptr<transport::RawServer> server)
      : RawPort(options, server->port()), server_(std::move(server)) {}
  void Run() override;

  const std::unique_ptr<transport::RawServer> server_;
};

}  // namespace hawser::internal

#endif  // HAWSER_SERVICES_PERF_RAW_QUEUE_PAIR_PORT_H_
