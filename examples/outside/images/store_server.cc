// store_server <uri>    e.g. tcp://[::]:7480

#include <iostream>

#include "images/memory_store.h"
#include "images/serving.h"

namespace {

constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;

}  // namespace

int main(int argc, char** argv) {
  examples::StopSignal stop;  // Made first, before there are other threads.
  if (argc != 2) {
    std::cerr << "usage: store_server <uri>" << std::endl;
    return 2;
  }
  // A quarter is left for connections and messages in flight, so that a full store can still serve remove().
  images::MemoryStore store(kMemoryBytes / 4 * 3);
  hawser::Server server({.pool = {.limit_bytes = kMemoryBytes}});
  absl::Status status = server.AddService(&store);
  if (status.ok()) status = images::ServeUntilStopped(server, argv[1], stop);
  if (!status.ok()) {
    std::cerr << "store_server: " << status << std::endl;
    return 1;
  }
}
