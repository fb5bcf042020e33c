#ifndef HAWSER_TESTS_RPC_NETWORK_TWO_DEVICES_H_
#define HAWSER_TESTS_RPC_NETWORK_TWO_DEVICES_H_

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

// Two RDMA devices of this guest with a link between them (setup rxe_pair of tests/softroce), and a shell to
// break it with.
namespace hawser {

inline std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  if (value != nullptr) return value;
  std::fprintf(stderr, "%s is not set: this runs in a guest of setup rxe_pair (tests/softroce)\n", name);
  std::exit(1);
}

// Runs a command line of the shell, which must succeed.
inline void Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  ASSERT_EQ(status, 0) << command;
}

// A counter of device `device`, of those that `rdma statistic` shows.
inline uint64_t Counter(const std::string& device, const std::string& name) {
  std::ifstream file(absl::StrCat("/sys/class/infiniband/", device, "/ports/1/hw_counters/", name));
  uint64_t value = 0;
  EXPECT_TRUE(file >> value) << device << " has no counter " << name;
  return value;
}

// How the link loses, delays, ... what is sent from either end, in the words of tc-netem(8). Whole again at
// the end.
class BadLink {
 public:
  explicit BadLink(const std::string& how) { Become(how); }
  ~BadLink() { Heal(); }
  BadLink(const BadLink&) = delete;
  BadLink& operator=(const BadLink&) = delete;

  void Become(const std::string& how) {
    for (const char* end : {"veth0", "veth1"}) {
      // Netem holds 1000 packets unless told more; then it would lose some, whatever it is asked for.
      Shell(absl::StrCat("tc qdisc replace dev ", end, " root netem limit 100000 ", how));
    }
    bad_ = true;
  }
  void Heal() {
    if (!std::exchange(bad_, false)) return;
    // The server's end first. If a request got through before its answer could, the server, whose tries may
    // be the shorter ones, would use them up while the second `tc` starts.
    for (const char* end : {"veth1", "veth0"}) Shell(absl::StrCat("tc qdisc del dev ", end, " root"));
  }

 private:
  bool bad_ = false;
};

inline void RemoveDevice(const std::string& device) {
  // The kernel lets it wait for those that have the device open.
  Shell(absl::StrCat("timeout 60 rdma link delete ", device));
}

inline void AddDevice(const std::string& device, const std::string& interface) {
  Shell(absl::StrCat("rdma link add ", device, " type rxe netdev ", interface));
}

// A server at one device. Clients come from the other.
struct FarServer {
  explicit FarServer(ServerOptions options = {}, const std::string& scheme = "rdma") {
    // A server without a runtime names no device, so the environment does.
    setenv("HAWSER_RDMA_DEVICE", Environment("HAWSER_RDMA_PEER_DEVICE").c_str(), 1);
    server = std::make_unique<TestServer>(
        std::move(options), absl::StrCat(scheme, "://", Environment("HAWSER_RDMA_PEER_ADDRESS"), ":0"));
    setenv("HAWSER_RDMA_DEVICE", near_device.c_str(), 1);
  }

  // Everything that a client has: its device, memory, pollers.
  std::shared_ptr<transport::Runtime> NewRuntime(fabric::VerbsFabricOptions options = {}) {
    options.device = near_device;
    return RuntimeOn(options);
  }

  // `options`: with what a client here needs to cross the link.
  ChannelOptions From(std::shared_ptr<transport::Runtime> runtime, ChannelOptions options = {}) {
    options.runtime = std::move(runtime);
    options.connection.local_address = near_address;
    return options;
  }

  // For a server there of which one wants to know what it holds.
  static std::shared_ptr<transport::Runtime> NewFarRuntime() {
    return RuntimeOn({.device = Environment("HAWSER_RDMA_PEER_DEVICE")});
  }

  static std::shared_ptr<transport::Runtime> RuntimeOn(const fabric::VerbsFabricOptions& options) {
    return transport::Runtime::CreateOn(fabric::NewVerbsFabric(options).value(), {}, /*start_threads=*/true)
        .value();
  }

  const std::string near_device = Environment("HAWSER_RDMA_DEVICE");
  const std::string near_address = Environment("HAWSER_RDMA_ADDRESS");
  std::unique_ptr<TestServer> server;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_NETWORK_TWO_DEVICES_H_
