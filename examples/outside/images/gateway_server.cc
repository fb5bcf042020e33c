// gateway_server <uri> <uri of the store>    e.g. auto://[::]:7481 tcp://localhost:7480
//
// The store's is tcp:// or rdma://: what auto:// stands for is known only when the store answers.

#include <iostream>
#include <optional>

#include "images/scaling_gateway.h"
#include "images/serving.h"

namespace {

constexpr int kThreads = 4;

absl::Status Run(const std::string& uri, const std::string& store_uri, examples::StopSignal& stop) {
  // The service outlives the server, and needs a channel that shares the server's memory. So it is declared
  // before both, and constructed after both.
  std::optional<images::ScalingGateway> gateway;
  hawser::Server server;
  // Create() does not wait, so the gateway may start before the store. It takes no auto://.
  absl::StatusOr<std::shared_ptr<hawser::Channel>> store =
      hawser::Channel::Create(store_uri, {.server = &server});
  if (!store.ok()) return store.status();
  gateway.emplace(*store, kThreads);
  if (absl::Status status = server.AddService(&*gateway); !status.ok()) return status;
  return images::ServeUntilStopped(server, uri, stop);
}

}  // namespace

int main(int argc, char** argv) {
  examples::StopSignal stop;  // Made first, before there are other threads.
  if (argc != 3) {
    std::cerr << "usage: gateway_server <uri> <uri of the store: tcp:// or rdma://>" << std::endl;
    return 2;
  }
  if (absl::Status status = Run(argv[1], argv[2], stop); !status.ok()) {
    std::cerr << "gateway_server: " << status << std::endl;
    return 1;
  }
}
