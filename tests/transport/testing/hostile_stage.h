#ifndef HAWSER_TESTS_TRANSPORT_TESTING_HOSTILE_STAGE_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_HOSTILE_STAGE_H_

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {

// A hostile peer, the side that it attacks, and honest peers that the attack must not affect.
class HostileTest : public ::testing::Test {
 protected:
  HostileTest() { honest_.EchoAll(); }

  ~HostileTest() override {
    if (victim != nullptr && observer.closings == 0) {
      World::On(*side_, [&] { victim->Close(); });
      EXPECT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
    }
    EXPECT_TRUE(IsSkipped() || observer.closings == 1);
    server.requests.clear();
    PendingCall call;
    honest_.Call(call, NewMessage(world.client.messages(), kMiB));
    EXPECT_THAT(call.response, IsOk()) << "another connection was hit";
    world.Pass(absl::Milliseconds(2));
    EXPECT_EQ(world.client.poller().connection_count() + world.server.poller().connection_count(), 2u);
    EXPECT_EQ(world.server.poller().read_budget().taken_bytes(), 0u);
  }

  // The peer has the role that sends requests; the victim answers them.
  void AttackServer(const ConnectionOptions& options = {}) {
    side_ = &world.server;
    listener_.on_peer = [&](PeerRequest request) {
      absl::StatusOr<Connection*> accepted =
          Connection::Accept(world.server.poller(), std::move(request), options,
                             NewSessionToken(Environment::Real()), observer, &server);
      ASSERT_THAT(accepted, IsOk());
      victim = *accepted;
    };
    peer.Dial(listener_.address(), Encode(Hello()));
    ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value() && peer.established(); }));
  }

  // The victim sends requests; the peer has the role that answers them.
  void AttackClient(const ConnectionOptions& options = {}) {
    side_ = &world.client;
    const SocketAddress address = peer.Listen(Encode(Hello()));
    world.OnClient([&] {
      absl::StatusOr<Connection*> dialed = Connection::Dial(world.client.poller(), address, options,
                                                            Handshake(), absl::Seconds(5), observer, nullptr);
      ASSERT_THAT(dialed, IsOk());
      victim = *dialed;
    });
    ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value() && peer.established(); }));
  }

  void SendRequest(PendingCall& call, size_t body_bytes = 8, int64_t deadline_ns = kNever) {
    const size_t before = peer.received().size();
    world.OnClient([&] {
      OutgoingMessagePtr request = NewMessage(world.client.messages(), body_bytes);
      absl::StatusOr<ExchangeId> sent = victim->SendRequest(request, deadline_ns, call);
      ASSERT_THAT(sent, IsOk());
      call.id = *sent;
    });
    ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() > before; }));
  }

  void Respond(ExchangeId id) {
    world.OnServer([&] {
      OutgoingMessagePtr response = NewMessage(world.server.messages(), 8);
      EXPECT_THAT(victim->Respond(id, response), IsOk());
    });
  }

  // Expects that the connection has ended for this reason, which names the peer, and that the peer has
  // detected it.
  void ExpectClosed(absl::StatusCode code, const std::string& what) {
    ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; })) << "it goes on";
    EXPECT_THAT(*observer.closed, HasCode(code));
    EXPECT_THAT(Text(*observer.closed), ::testing::HasSubstr(what));
    EXPECT_THAT(Text(*observer.closed), ::testing::HasSubstr(TestScheme() + "://"));
    EXPECT_TRUE(world.RunUntil([&] { return peer.ended(); }));
  }
  void ExpectDataLoss(const std::string& what) { ExpectClosed(absl::StatusCode::kDataLoss, what); }

  void ExpectOpen() {
    world.Settle();
    EXPECT_EQ(observer.closings, 0) << *observer.closed;
  }

  // The peer's handshake.
  Handshake Hello() const {
    Handshake hello = HostilePeer::Hello();
    hello.features = features;
    return hello;
  }

  World world;
  HostilePeer peer{world};
  uint32_t features = 0;  // In the peer's handshake.
  RecordingObserver observer;
  RecordingServer server;
  Connection* victim = nullptr;

 private:
  Link honest_{world};
  TestListener listener_{world, world.server};
  World::Side* side_ = nullptr;
};

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_HOSTILE_STAGE_H_
