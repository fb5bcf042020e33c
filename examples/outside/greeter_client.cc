// greeter_client <name> [uri]    e.g. tcp://localhost:7470

#include <iostream>

#include "greeter.rpc.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: greeter_client <name> [uri]" << std::endl;
    return 2;
  }
  absl::StatusOr<std::shared_ptr<hawser::Channel>> channel =
      hawser::Channel::Connect(argc > 2 ? argv[2] : "tcp://localhost:7470");
  if (!channel.ok()) {
    std::cerr << "greeter_client: " << channel.status() << std::endl;
    return 1;
  }

  greeter::GreeterStub greeter(*channel);
  auto call = greeter.Greet({.timeout = absl::Seconds(5)});
  call.request().initPerson().setName(argv[1]);
  absl::StatusOr<hawser::Reply<greeter::Greeter::GreetResults>> reply = call.Send().Wait();
  if (!reply.ok()) {
    std::cerr << "greeter_client: " << reply.status() << std::endl;
    return 1;
  }
  std::cout << (*reply)->getGreeting().cStr() << std::endl;
}
