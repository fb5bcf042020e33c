#ifndef HAWSER_BENCH_TARGET_H_
#define HAWSER_BENCH_TARGET_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/process.h"
#include "hawser/rpc/channel.h"
#include "hawser/tls/credentials.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/options.h"

// What the benchmarks measure, at both ends.
namespace hawser::bench {

// How a benchmark waits: "sleep", "spin" or "adaptive".
transport::PollingMode ParseMode(const std::string& mode);

struct TargetOptions {
  TargetOptions();

  std::string address;  // Initially the value of --address.
  std::string mode = "adaptive";
  Pin pin = Pin::kTwoCores;
  uint32_t slots = 64;
  absl::Duration keepalive_interval = transport::ConnectionOptions().keepalive_interval;
  std::optional<TlsCredentials> credentials;  // The same for both sides. Empty: no TLS.
};

// Serves bench.capnp's Target, and prints where, until the process is killed.
[[noreturn]] void ServeTarget(const TargetOptions& options);

// A process that does so.
ServerProcess StartTarget(const TargetOptions& options);

// A client's poller, and memory, for any number of channels. This and the next exit with a message when they
// fail.
std::shared_ptr<transport::Runtime> MakeRuntime(const TargetOptions& options);

std::shared_ptr<Channel> ConnectTo(const ServerProcess& server, const TargetOptions& options,
                                   std::shared_ptr<transport::Runtime> runtime);

// One echo of `payload`, waited for. Exits with a message when it fails.
void EchoOnce(TargetStub& target, const std::string& payload);

// A process with a raw socket; see ServeRaw().
ServerProcess StartRaw(const std::string& what, const TargetOptions& options);

// Call it first in main(). In a server's process it serves and does not return.
void ServeIfAsked(int argc, char** argv);

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_TARGET_H_
