// greeter_server [uri]    e.g. tcp://[::]:7470

#include <iostream>

#include "hawser/rpc/server.h"
#include "polite_greeter.h"

int main(int argc, char** argv) {
  greeter::PoliteGreeter greeter;
  hawser::Server server;
  absl::Status status = server.AddService(&greeter);
  if (status.ok()) {
    absl::StatusOr<std::string> uri = server.Listen(argc > 1 ? argv[1] : "tcp://[::]:7470");
    status = uri.status();
    if (uri.ok()) std::cout << "listening on " << *uri << std::endl;
  }
  if (status.ok()) status = server.Wait();
  if (!status.ok()) {
    std::cerr << "greeter_server: " << status << std::endl;
    return 1;
  }
}
