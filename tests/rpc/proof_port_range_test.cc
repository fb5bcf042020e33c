// ServerOptions::proof_ports: where a server takes proofs whose RDMA device takes its ports from TCP.

#include <unistd.h>

#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/rpc/log.h"
#include "tests/rpc/proof_ports.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ProofPortRangeTest : public ProofPortsTest {
 protected:
  absl::Status Listen(PortRange ports) {
    Server server(AsServer(ports));
    return server.Listen(AnyPort()).status();
  }
};

TEST_P(ProofPortRangeTest, TheFirstPortThatIsFreeIsTaken) {
  // Below the ports that the kernel gives away.
  uint16_t first = 22000 + getpid() % 5000;
  auto held = std::make_unique<HeldPort>(first);
  while (!held->held()) held = std::make_unique<HeldPort>(++first);
  const HeldPort second(first + 1);  // Or another program has it.
  TestServer server(AsServer({first, static_cast<uint16_t>(first + 200)}), AnyPort());
  const uint16_t told = *ToldPort(PortOf(server.uri));
  EXPECT_GT(told, first + 1);
  for (uint16_t port = first + 2; port < told; ++port) EXPECT_FALSE(HeldPort(port).held()) << port;
  EXPECT_THAT(SendAct(server.Connect(AsClient()), 1).Wait(), IsOk());
}

// A device may give rdma:// a port that the kernel takes for a free one.
TEST_P(ProofPortRangeTest, APortThatTheDeviceTakesIsNotThatOfProofs) {
  if (GetParam() != Over::kExecuting) GTEST_SKIP() << "the kernel knows of the port";
  uint16_t next = 0;
  {
    const RawListener last(runtime_, AddressAt(0), [](auto) {});
    next = last.address().port() + 1;
  }
  TestServer server(AsServer({next, static_cast<uint16_t>(next + 200)}), AnyPort());
  const uint16_t told = *ToldPort(PortOf(server.uri));
  EXPECT_NE(PortOf(server.uri), told);
  EXPECT_GT(PortOf(server.uri), next);  // It was given `next` first.
  EXPECT_THAT(SendAct(server.Connect(AsClient()), 1).Wait(), IsOk());
}

TEST_P(ProofPortRangeTest, ListensAtTheSameTimeShareOnePort) {
  for (int i = 0; i < 20; ++i) {
    uint16_t port = 0;
    {
      const HeldPort held;
      port = held.port();
    }
    Server server(AsServer({port, port}));
    absl::Status second;
    std::thread other([&] { second = server.Listen(AnyPort()).status(); });
    const absl::Status first = server.Listen(AnyPort()).status();
    other.join();
    ASSERT_THAT(first, IsOk());
    ASSERT_THAT(second, IsOk());
  }
}

TEST_P(ProofPortRangeTest, ThePortIsInTheLog) {
  Box<std::string> lines;
  SetLogSink([&](LogSeverity, absl::string_view line) { lines.Put(std::string(line)); });
  TestServer server(AsServer(), AnyPort());
  const std::string says = absl::StrCat("at TCP port ", *ToldPort(PortOf(server.uri)), " ");
  std::string line;
  do {
    line = lines.Take();
  } while (!absl::StrContains(line, says));
  EXPECT_THAT(line, HasSubstr(server.uri));
  SetLogSink(nullptr);
}

TEST_P(ProofPortRangeTest, OnePortServesAllAddressesOfTheServer) {
  uint16_t port = 0;
  {
    const HeldPort held;
    port = held.port();
  }
  for (const PortRange ports : {PortRange{port, port}, PortRange{}}) {
    TestServer server(AsServer(ports), AnyPort());
    const uint16_t told = *ToldPort(PortOf(server.uri));
    EXPECT_TRUE(ports.first == 0 || told == port) << told;
    const auto second = server.server.Listen(AnyPort());
    ASSERT_THAT(second.status(), IsOk());
    for (const std::string& uri : {server.uri, *second}) {
      EXPECT_EQ(*ToldPort(PortOf(uri)), told);
      const auto channel = Channel::Connect(uri, AsClient());
      ASSERT_THAT(channel.status(), IsOk());
      EXPECT_THAT(SendAct(*channel, 1).Wait(), IsOk());
    }
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
  const HeldPort held(kLast);  // Or another program has it.
  EXPECT_THAT(Listen({kLast, kLast}), HasCode(absl::StatusCode::kAlreadyExists));
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
  EXPECT_TRUE(HeldPort(port).held());
}

INSTANTIATE_TEST_SUITE_P(Over, ProofPortRangeTest, FabricsWithPortsOfTcp(), OverName);

}  // namespace
}  // namespace hawser
