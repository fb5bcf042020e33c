#ifndef HAWSER_BENCH_TARGET_H_
#define HAWSER_BENCH_TARGET_H_

#include <memory>
#include <string>

#include "hawser/bench/process.h"
#include "hawser/rpc/channel.h"
#include "hawser/transport/options.h"

// What the benchmarks measure, at both ends.
namespace hawser::bench {

// How a benchmark waits: "sleep", "spin" or "adaptive".
transport::PollingMode ParseMode(const std::string& mode);

struct TargetOptions {
  std::string mode = "adaptive";
  Pin pin = Pin::kTwoCores;
  uint32_t slots = 64;
};

// A process that serves bench.capnp's Target.
ServerProcess StartTarget(const TargetOptions& options);

// A channel to it with a poller of its own. Exits with a message when that fails.
std::shared_ptr<Channel> ConnectTo(const ServerProcess& server, const TargetOptions& options);

// A process with a raw socket; see ServeRaw().
ServerProcess StartRaw(const std::string& what, const TargetOptions& options);

// To be called first in main(): in a server's process it serves and does not return.
void ServeIfAsked(int argc, char** argv);

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_TARGET_H_
