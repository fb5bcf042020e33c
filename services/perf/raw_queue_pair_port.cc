#include "hawser/services/perf/raw_queue_pair_port.h"

#include <new>

#include "absl/status/status.h"

namespace hawser::internal {

absl::StatusOr<std::unique_ptr<RawPort>> RawQueuePairPort::Open(const Options& options,
                                                                std::shared_ptr<transport::Runtime> runtime,
                                                                std::function<void()> on_end) {
  SocketAddress address = options.address;
  address.set_port(0);
  auto server = transport::RawServer::Listen(std::move(runtime), {.address = address,
                                                                  .host = options.host,
                                                                  .token = options.token,
                                                                  .polling = options.polling,
                                                                  .accept_time = options.accept_time});
  if (!server.ok()) return server.status();
  std::unique_ptr<RawQueuePairPort> made(new RawQueuePairPort(options, *std::move(server)));
  if (absl::Status started = made->Start(std::move(on_end)); !started.ok()) return started;
  return made;
}

RawQueuePairPort::~RawQueuePairPort() {
  Stop();
  Join();
}

void RawQueuePairPort::Run() {
  try {
    // Not OK, and for nothing here: the client sees that its connection has ended.
    server_->Serve().IgnoreError();
  } catch (const std::bad_alloc&) {  // The client chooses how much it takes: this ends its connection.
  }
}

}  // namespace hawser::internal
