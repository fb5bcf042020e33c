// One-sided memory and the session that its tickets are for: what ends with it, and what is bounded.

#include <capnp/message.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/observe/prometheus.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/lane/lane_server.h"
#include "hawser/transport/lane/lent_memory.h"
#include "tests/rpc/cable.h"
#include "tests/rpc/dialed_lane.h"
#include "tests/rpc/fake_server.h"
#include "tests/rpc/memory_probe.rpc.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kTicketsPerClient = 4096, kTicketsPerHost = 16384;
const CallOptions kPatient = {.timeout = kLong, .wait_for_ready = true};

// Grants the first byte, and `length` - 1 further tickets.
class MemoryProbeImpl final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader request,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    auto ticket = reply.initTicket();
    for (uint64_t i = 0; i < request.getLength(); ++i) {
      const absl::Status granted = context.Grant(*memory, {.length = i + 8}, ticket);
      if (!granted.ok()) return granted;
    }
    return absl::OkStatus();
  }
  std::optional<SharedMemory> memory;
};

class MemorySessionTest : public ::testing::Test {
 protected:
  MemorySessionTest() {
    EXPECT_THAT(server_.AddService(&probe_), IsOk());
    uri_ = server_.Listen(TestUri()).value();
  }
  void Share() {
    absl::StatusOr<SharedMemory> memory = server_.Share(1 << 16);
    ASSERT_THAT(memory.status(), IsOk());
    probe_.memory = *std::move(memory);
  }
  std::shared_ptr<Channel> Connect() { return *Channel::Connect(uri_); }
  static absl::StatusOr<Reply<memory_probe::MemoryProbe::GrantResults>> Ask(
      const std::shared_ptr<Channel>& channel, uint64_t tickets = 1) {
    auto call = memory_probe::MemoryProbeStub(channel).Grant(kPatient);
    call.request().setLength(tickets);
    return call.Send().Wait();
  }
  static RemoteMemory Reach(const std::shared_ptr<Channel>& channel) {
    const auto reply = Ask(channel);
    EXPECT_THAT(reply.status(), IsOk());
    return RemoteMemory(channel, (*reply)->getTicket());
  }
  static absl::Status Read(RemoteMemory& remote) {
    uint8_t bytes[8];
    return remote.Read(0, bytes).Wait();
  }

  MemoryProbeImpl probe_;
  Server server_;
  std::string uri_;
};

TEST_F(MemorySessionTest, AServerThatHasSharedNothingRefusesALane) {
  const auto channel = Connect();
  {
    const DialedLane lane(*Runtime::Default(TestScheme()), TargetOf(*channel));
    EXPECT_THAT(lane.status(), HasCode(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(std::string(lane.status().message()), HasSubstr("shared no memory"));
  }
  EXPECT_EQ(server_.stats().connections, 1u);
  Share();
  RemoteMemory remote = Reach(channel);
  EXPECT_THAT(Read(remote), IsOk());
}

// Also of a client that leaves its lane open.
TEST_F(MemorySessionTest, ALaneEndsWithItsSession) {
  Share();
  const auto channel = Connect();
  const DialedLane lane(*Runtime::Default(TestScheme()), TargetOf(*channel));
  ASSERT_THAT(lane.status(), IsOk());
  EXPECT_EQ(server_.stats().connections, 2u);
  channel->Close();
  EXPECT_TRUE(Eventually([&] { return lane.gone(); }));
  EXPECT_TRUE(Eventually([&] { return server_.stats().connections == 0; }));
}

TEST_F(MemorySessionTest, AFurtherLaneTakesThePlaceOfTheOneBefore) {
  Share();
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  ASSERT_THAT(Read(remote), IsOk());
  const DialedLane lane(*Runtime::Default(TestScheme()), TargetOf(*channel));
  ASSERT_THAT(lane.status(), IsOk());
  EXPECT_TRUE(Eventually([&] { return server_.stats().connections == 2; }));
  EXPECT_FALSE(lane.gone());
  // The channel opens another one, which takes the place of that. Its first operation may be lost with the
  // one before.
  EXPECT_TRUE(Eventually([&] { return Read(remote).ok(); }));
  EXPECT_TRUE(Eventually([&] { return lane.gone(); }));
}

TEST_F(MemorySessionTest, AfterAReconnectATicketIsVoidAndANewOneIsGood) {
  Share();
  Cable cable(uri_);
  const auto channel = *cable.Connect();
  const auto first = Ask(channel);
  ASSERT_THAT(first.status(), IsOk());
  RemoteMemory before(channel, (*first)->getTicket());
  ASSERT_THAT(Read(before), IsOk());
  cable.Cut();
  // Calls may be answered, or be lost, until the client notices. Within a session the ticket is the same.
  auto second = Ask(channel);
  ASSERT_TRUE(Eventually([&] {
    if (second.ok() && (*second)->getTicket().getKeyLow() != (*first)->getTicket().getKeyLow()) return true;
    second = Ask(channel);
    return false;
  }));
  RemoteMemory after(channel, (*second)->getTicket());
  EXPECT_THAT(Read(after), IsOk());
  const absl::Status status = Read(before);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("earlier connection"));
  EXPECT_THAT(Read(after), IsOk());
}

TEST_F(MemorySessionTest, TicketsOfTheClientsOfOneHostAreBoundedTogether) {
  Share();
  std::vector<std::shared_ptr<Channel>> clients;
  for (uint32_t tickets = 0; tickets < kTicketsPerHost; tickets += kTicketsPerClient) {
    clients.push_back(Connect());
    ASSERT_THAT(Ask(clients.back(), kTicketsPerClient).status(), IsOk());
  }
  const auto one_more = Connect();
  const absl::Status status = Ask(one_more).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("this host"));
  clients.front()->Close();
  EXPECT_TRUE(Eventually([&] { return Ask(one_more).ok(); }));
}

// Of `name`, which has its labels; "none": it is not there.
std::string Metric(const Server& server, const std::string& name) {
  Taken taken(server);
  const std::string text = absl::StrCat("\n", observe::ToPrometheus(taken.Get()));
  const size_t at = text.find(absl::StrCat("\n", name, " "));
  if (at == std::string::npos) return "none";
  const size_t from = at + name.size() + 2;
  return text.substr(from, text.find('\n', from) - from);
}

TEST_F(MemorySessionTest, MetricsHaveMemoryTicketsLanesAndOperations) {
  const std::string reads = "hawser_channel_memory_operations_total{kind=\"read\",code=\"OK\"}";
  const auto counted = [this](const std::string& name) {
    const std::string value = Metric(server_, name);
    return value == "none" ? 0 : std::stoi(value);
  };
  const std::string refused = "hawser_channel_memory_operations_total{kind=\"write\",code=\"OUT_OF_RANGE\"}";
  EXPECT_EQ(Metric(server_, "hawser_server_shared_memory_bytes"), "0");
  // Of the process, which other tests share.
  const int reads_before = counted(reads), refused_before = counted(refused);
  Share();
  EXPECT_EQ(Metric(server_, "hawser_server_shared_memory_bytes"), "65536");
  EXPECT_EQ(Metric(server_, "hawser_server_shared_memory_regions"), "1");
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  EXPECT_EQ(Metric(server_, "hawser_server_memory_tickets"), "1");
  EXPECT_EQ(Metric(server_, "hawser_server_lanes"), "0");
  for (int i = 0; i < 3; ++i) ASSERT_THAT(Read(remote), IsOk());
  uint8_t bytes[9] = {};
  EXPECT_THAT(remote.Write(0, bytes).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_EQ(Metric(server_, "hawser_server_lanes"), "1");
  EXPECT_EQ(Metric(server_, "hawser_server_memory_grants"), "1");
  EXPECT_EQ(Metric(server_, "hawser_server_lanes_opened_total"), "1");
  EXPECT_EQ(counted(reads), reads_before + 3);
  EXPECT_EQ(counted(refused), refused_before + 1);
  EXPECT_THAT(probe_.memory->Revoke(), IsOk());
  EXPECT_EQ(Metric(server_, "hawser_server_shared_memory_bytes"), "0");
  channel->Close();
  EXPECT_TRUE(Eventually([&] { return Metric(server_, "hawser_server_lanes") == "0"; }));
  EXPECT_TRUE(Eventually([&] { return Metric(server_, "hawser_server_memory_tickets") == "0"; }));
  EXPECT_EQ(Metric(server_, "hawser_server_memory_grants"), "0");
  EXPECT_EQ(Metric(server_, "hawser_server_lanes_opened_total"), "1");
}

// Lends its memory for any ticket.
class Lender final : public transport::LaneServer::Owner {
 public:
  absl::StatusOr<std::shared_ptr<transport::LentMemory>> OnTicket(const transport::LaneTicket&) override {
    return memory;
  }
  void OnLaneGone(transport::LaneServer&) override { ++gone; }

  std::shared_ptr<transport::LentMemory> memory;
  std::atomic<int> gone{0};
};

// A lane of its own would keep to an owner that has died without a word as long as nothing is asked of it.
TEST(LostSessionTest, AClientEndsTheLaneOfASessionThatItHasLost) {
  FakeServer server;
  const auto lender = std::make_shared<Lender>();
  lender->memory = *transport::LentMemory::Map({7, 1}, 4096, server.poller().environment());
  ASSERT_THAT(lender->memory->RegisterWith(server.runtime()), IsOk());
  server.on_peer = [&](transport::PeerRequest request) {
    if (request.hello().role != transport::Role::kLane) return server.Accept(std::move(request));
    EXPECT_THAT(
        transport::LaneServer::Accept(server.runtime(), server.poller(), std::move(request), lender).status(),
        IsOk());
  };
  const auto channel = *Channel::Connect(server.uri);
  capnp::MallocMessageBuilder message;
  auto ticket = message.initRoot<memory::Ticket>();
  ticket.setOwner(7);
  ticket.setRegion(1);
  ticket.setLength(4096);
  ticket.setAccess(static_cast<uint8_t>(Access::kRead));
  RemoteMemory remote(channel, ticket.asReader());
  uint8_t bytes[8];
  ASSERT_THAT(remote.Read(0, bytes).Wait(), IsOk());
  EXPECT_EQ(lender->gone, 0);
  server.Run([&] { server.client(0).connection->Close(); });
  EXPECT_TRUE(Eventually([&] { return lender->gone == 1; }));
  channel->Close();
}

}  // namespace
}  // namespace hawser
