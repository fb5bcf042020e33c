// Messages that are nearly valid find bugs that no other test covers; sanitizers report them.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

TEST(HostileChanceTest, RandomMessagesHarmNobodyElse) {
  // Fewer over RDMA, because that is mostly an emulated machine.
  const uint32_t seeds = TestScheme() == "tcp" ? 30 : 10;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    World world;
    Link honest(world);
    honest.EchoAll();
    uint32_t state = seed * 2654435761u;
    const auto random = [&](uint32_t below) {
      state = state * 1664525u + 1013904223u;
      return (state >> 8) % below;
    };
    const bool attack_server = random(2) == 0;
    RecordingObserver observer;
    RecordingServer server;
    HostilePeer peer(world);
    Connection* victim = nullptr;
    TestListener listener(world, world.server);
    listener.on_peer = [&](PeerRequest request) {
      victim = *Connection::Accept(world.server.poller(), std::move(request), {.message_bytes_max = 8 * kMiB},
                                   NewSessionToken(Environment::Real()), observer,
                                   attack_server ? &server : nullptr);
    };
    server.answer = [&](RecordingServer::Request request) {
      if (random(4) == 0) return server.requests.push_back(std::move(request));
      OutgoingMessagePtr response = NewMessage(world.server.messages(), random(3) == 0 ? 100'000 : 80);
      victim->Respond(request.id, response).IgnoreError();
    };
    server.on_bad_request = [&](ExchangeId id) {
      OutgoingMessagePtr response = NewMessage(world.server.messages(), 8);
      victim->Respond(id, response).IgnoreError();
    };
    peer.Dial(listener.address(),
              Encode(HostilePeer::Hello(attack_server ? Role::kForward : Role::kReverse)));
    ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value() && peer.established(); }));
    std::vector<std::unique_ptr<PendingCall>> calls;
    uint32_t generations[4] = {}, control = 0;
    const TableEntry grant = peer.Grant(2 * kMiB);
    for (int step = 0; step < 300 && observer.closings == 0; ++step) {
      if (!attack_server && random(2) == 0) {
        calls.push_back(std::make_unique<PendingCall>());
        world.OnServer([&] {
          OutgoingMessagePtr request = NewMessage(world.server.messages(), random(3) == 0 ? 100'000 : 80);
          victim
              ->SendRequest(request, After(world.clock.NowNs(), absl::Milliseconds(random(20))),
                            *calls.back())
              .status()
              .IgnoreError();
        });
      }
      const uint16_t slot = static_cast<uint16_t>(random(4));
      RawMessage message = attack_server ? RawRequest(slot, ++generations[slot], 8 * random(10))
                                         : RawResponse(slot, 1 + random(4), 8 * random(10));
      switch (random(10)) {
        case 0:
          message.table.push_back({grant.address, grant.rkey, 8 * (1 + random(kMiB / 4))});
          ++message.header.entries;
          break;
        case 1:
          peer.Send(RawControl(++control, {{ControlOp::Code::kCancel, slot, generations[slot]},
                                           {ControlOp::Code::kRelease, slot, generations[slot] - 1}}));
          break;
        default:
          break;
      }
      std::string bytes = message.Encode();
      if (random(50) == 0)
        bytes[random(static_cast<uint32_t>(bytes.size()))] ^= static_cast<char>(1 << random(8));
      if (random(100) == 0) bytes.resize(1 + random(static_cast<uint32_t>(bytes.size())));
      peer.Send(bytes);
      for (uint32_t turns = random(4); turns > 0; --turns) world.Turn();
      if (random(10) == 0) world.clock.Advance(absl::Milliseconds(1));
    }
    if (observer.closings == 0) world.OnServer([&] { victim->Close(); });
    ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
    for (const auto& call : calls) EXPECT_LE(call->ends, 1);
    PendingCall call;
    honest.Call(call, NewMessage(world.client.messages(), kMiB));
    EXPECT_THAT(call.response, IsOk());
    EXPECT_EQ(world.server.poller().read_budget().taken_bytes(), 0u);
  }
}

}  // namespace
}  // namespace hawser::transport
