// ServerOptions::proof_ports: where a server takes proofs whose RDMA device takes its ports from TCP.

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/rpc/proof_ports.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Over TCP, with nothing to say.
class HeldPort {
 public:
  explicit HeldPort(uint16_t port = 0)
      : listener_(*Runtime::Default("tcp"), AddressAt(port), [](auto) {}),
        port_(listener_.address().port()) {}
  uint16_t port() const { return port_; }

 private:
  const RawListener listener_;
  const uint16_t port_;
};

class ProofPortRangeTest : public ProofPortsTest {
 protected:
  absl::Status Listen(PortRange ports) {
    Server server(AsServer(ports));
    return server.Listen(AnyPort()).status();
  }
};

TEST_P(ProofPortRangeTest, TheFirstPortThatIsFreeIsTaken) {
  // Some of those behind it are free, whoever has the others.
  std::unique_ptr<HeldPort> held;
  do {
    held = std::make_unique<HeldPort>();
  } while (held->port() > 60000);
  const PortRange ports = {held->port(), static_cast<uint16_t>(held->port() + 200)};
  TestServer server(AsServer(ports), AnyPort());
  const uint16_t told = *ToldPort(PortOf(server.uri));
  EXPECT_GT(told, ports.first);
  EXPECT_LE(told, ports.last);
  EXPECT_THAT(SendAct(server.Connect(AsClient()), 1).Wait(), IsOk());
}

TEST_P(ProofPortRangeTest, OnePortServesAllAddressesOfTheServer) {
  uint16_t port = 0;
  {
    const HeldPort held;
    port = held.port();
  }
  TestServer server(AsServer({port, port}), AnyPort());
  const auto second = server.server.Listen(AnyPort());
  ASSERT_THAT(second.status(), IsOk());
  for (const std::string& uri : {server.uri, *second}) {
    EXPECT_EQ(*ToldPort(PortOf(uri)), port);
    const auto channel = Channel::Connect(uri, AsClient());
    ASSERT_THAT(channel.status(), IsOk());
    EXPECT_THAT(SendAct(*channel, 1).Wait(), IsOk());
  }
}

TEST_P(ProofPortRangeTest, ARangeWithoutAFreePortIsNamed) {
  const HeldPort held;
  const absl::Status status = Listen({held.port(), held.port()});
  EXPECT_THAT(status, HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Text(status), AllOf(HasSubstr("ServerOptions::proof_ports"),
                                  HasSubstr(absl::StrCat(held.port(), " to ", held.port()))));
}

TEST_P(ProofPortRangeTest, ThePortOfTheAddressIsPassedOver) {
  uint16_t port = 0;
  {
    const HeldPort held;
    port = held.port();
  }
  Server server(AsServer({port, port}));
  const absl::Status status = server.Listen(UriAt(port)).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Text(status), HasSubstr("rdma:// itself takes it"));
}

TEST_P(ProofPortRangeTest, ARangeThatEndsWithTheLastPortEnds) {
  constexpr uint16_t kLast = std::numeric_limits<uint16_t>::max();
  const absl::Status status = Listen({kLast, kLast});
  // Another program may have it.
  EXPECT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
}

TEST_P(ProofPortRangeTest, ARangeThatNoClientWouldDialIsRefused) {
  for (const PortRange ports : std::vector<PortRange>{
           {2001, 2000}, {65535, 1024}, {65535, 0}, {0, 2000}, {1023, 2000}, {80, 80}, {1, 65535}}) {
    const absl::Status status = Listen(ports);
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument)) << ports.first << " to " << ports.last;
    EXPECT_THAT(Text(status), HasSubstr("ServerOptions::proof_ports is "));
  }
}

TEST_P(ProofPortRangeTest, AListenThatFailsHoldsNoPort) {
  uint16_t port = 0;
  {
    const HeldPort held;
    port = held.port();
  }
  TestServer first(AsServer(), AnyPort());
  Server second(AsServer({port, port}));
  EXPECT_THAT(second.Listen(first.uri).status(), HasCode(absl::StatusCode::kAlreadyExists));
  const HeldPort free(port);
  EXPECT_EQ(free.port(), port);
}

INSTANTIATE_TEST_SUITE_P(Over, ProofPortRangeTest, FabricsWithPortsOfTcp(), OverName);

}  // namespace
}  // namespace hawser
