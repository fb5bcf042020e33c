#ifndef HAWSER_TESTS_RPC_PROOF_PORTS_H_
#define HAWSER_TESTS_RPC_PROOF_PORTS_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/base/violation.h"
#include "hawser/tests/testing/plain_fabric.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/uri.h"
#include "tests/rpc/credentials_probe.h"
#include "tests/rpc/raw_peers.h"

// What the tests of credentials share that run over fabrics which take their ports from TCP.
namespace hawser {

// Not 127.0.0.1, which a test or what it uses might have by default, where the address of a device is meant.
inline std::string Host() { return TestScheme() == "rdma" ? TestHost() : "127.0.0.2"; }

inline SocketAddress AddressAt(uint16_t port, const std::string& host = Host()) {
  return transport::Resolve({.scheme = "rdma", .host = host, .port = port})->front();
}

inline uint16_t PortOf(const std::string& uri) { return transport::ParseUri(uri)->port; }

// A TCP port that nothing listens on, and that no other program gets meanwhile.
class HeldPort {
 public:
  explicit HeldPort(uint16_t port = 0) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    SocketAddress address = AddressAt(port);
    held_ = bind(socket_, address.get(), address.length_bytes()) == 0;
    sockaddr_in bound = {};
    socklen_t length = sizeof(bound);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length), 0);
    port_ = ntohs(bound.sin_port);
  }
  ~HeldPort() { close(socket_); }
  HeldPort(const HeldPort&) = delete;
  // False: something else has it.
  bool held() const { return held_; }
  uint16_t port() const { return port_; }
  int fd() const { return socket_; }

 private:
  const int socket_;
  bool held_ = false;
  uint16_t port_ = 0;
};

enum class Over {
  kPlain,      // TCP that is called RDMA: a listener has the TCP port.
  kExecuting,  // Verbs, on an iWARP device in memory.
  kDevice,     // The one of HAWSER_RDMA_ADDRESS.
};

inline std::string OverName(const ::testing::TestParamInfo<Over>& over) {
  return over.param == Over::kPlain ? "Plain" : over.param == Over::kExecuting ? "Executing" : "Device";
}

inline auto FabricsWithPortsOfTcp() {
  return ::testing::ValuesIn(TestScheme() == "rdma" ? std::vector<Over>{Over::kDevice}
                                                    : std::vector<Over>{Over::kPlain, Over::kExecuting});
}

class ProofPortsTest : public ::testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    if (!runtime_->poller(0).fabric().takes_ports_of_tcp()) {
      GTEST_SKIP() << "the device has ports of its own";
    }
  }

  static std::shared_ptr<fabric::Fabric> NewFabric(Over over) {
    if (over == Over::kPlain) return std::make_shared<PlainFabric>(PlainFabric::Ports::kOfTcp);
    if (over == Over::kDevice) return NewTestFabric();
    static auto* const verbs = new fabric::ExecutingVerbs({.windows = false, .iwarp = true});
    return fabric::NewVerbsFabric({.device = "fake0", .library = &verbs->library()}).value();
  }
  static std::string AnyPort() { return absl::StrCat("rdma://", Host(), ":0"); }
  static std::string UriAt(uint16_t port) { return absl::StrCat("rdma://", Host(), ":", port); }

  TlsCredentials Credentials(const std::string& dns) const {
    CertificateNames names = LoopbackNames();
    names.dns = {dns};
    names.ips.push_back(Host());
    return authority_.Issue(names);
  }
  ServerOptions AsServer(PortRange proof_ports = {}) const {
    ServerOptions options;
    options.runtime = runtime_;
    options.credentials = Credentials("server.example.org");
    options.proof_ports = proof_ports;
    return options;
  }
  ChannelOptions AsClient() const {
    ChannelOptions options;
    options.runtime = runtime_;
    options.credentials = Credentials("client.example.org");
    return options;
  }

  // What the server at `port` tells a client that asks.
  absl::StatusOr<uint16_t> ToldPort(uint16_t port) const {
    const RawEnd asks(runtime_, AddressAt(port), Encode(HelloOf(transport::Role::kProveForward)));
    EXPECT_FALSE(asks.accepted());
    return transport::DecodeProofPort(asks.data());
  }
  static uint64_t Violations(const TestServer& server, Violation violation) {
    return server.server.stats().violations[violation];
  }
  static uint64_t AllViolations(const TestServer& server) {
    const auto by_reason = server.server.stats().violations.by_reason;
    return std::accumulate(by_reason.begin(), by_reason.end(), uint64_t{0});
  }

  const CertificateAuthority authority_;
  const std::shared_ptr<Runtime> runtime_ =
      *Runtime::CreateOn(NewFabric(GetParam()), {}, /*start_threads=*/true);
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_PROOF_PORTS_H_
