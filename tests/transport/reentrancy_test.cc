// A callback of a connection may do anything to that connection.
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

// The first message of a connection completes a receive. Later small ones are taken inside Poll(), where the
// fabric offers them.
void Warm(Link& link) {
  link.EchoAll();
  PendingCall call;
  link.Call(call, NewMessage(link.world.client.messages(), 8));
  link.world.Settle();
}
bool IsOffered() { return TestScheme() == "tcp"; }

TEST(ReentrancyTest, AHandlerMayCloseFromInsideItsResponse) {
  World world;
  Link link(world);
  Warm(link);
  PendingCall first, second;
  first.on_response = [&] { link.client_end->Close(); };
  ASSERT_THAT(link.Send(first, 8), IsOk());
  ASSERT_THAT(link.Send(second, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_THAT(first.response, IsOk());
  EXPECT_EQ(first.ends, 1);
  EXPECT_EQ(second.ends, 1);
  EXPECT_EQ(link.client_counts().taken_sends > 0, IsOffered());
}

TEST(ReentrancyTest, AHandlerThatHearsOfAFailureMaySendCloseCancelAndDrain) {
  World world;
  Link link(world);
  std::vector<PendingCall> calls(8);
  PendingCall retry;
  for (PendingCall& call : calls) {
    ASSERT_THAT(link.Send(call, 8), IsOk());
    call.on_response = [&] {
      EXPECT_THAT(link.Send(retry, 8), HasCode(absl::StatusCode::kCancelled));
      for (PendingCall& other : calls) link.client_end->Cancel(other.id);
      link.client_end->Drain();
      link.client_end->Close();
    };
  }
  world.OnClient([&] { link.client_end->Close(); });
  for (PendingCall& call : calls) EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(retry.ends, 0);
}

TEST(ReentrancyTest, OnSlotFreeMayClose) {
  World world;
  Link link(world);
  Warm(link);
  link.client_observer.on_slot_free = [&] { link.client_end->Close(); };
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(link.client_counts().taken_sends > 0, IsOffered());
}

TEST(ReentrancyTest, OnReadyMaySendAndClose) {
  World world;
  TestListener listener(world, world.server);
  RecordingObserver client, server;
  RecordingServer handler;
  listener.on_peer = [&](PeerRequest request) {
    ASSERT_THAT(Connection::Accept(world.server.poller(), std::move(request), {},
                                   NewSessionToken(Environment::Real()), server, &handler),
                IsOk());
  };
  Connection* end = nullptr;
  PendingCall call;
  client.on_ready = [&] {
    OutgoingMessagePtr request = NewMessage(world.client.messages(), 8);
    EXPECT_THAT(end->SendRequest(request, kNever, call), IsOk());
    end->Close();
  };
  world.OnClient([&] {
    end = *Connection::Dial(world.client.poller(), listener.address(), {}, Handshake(), absl::Seconds(2),
                            client, nullptr);
  });
  ASSERT_TRUE(
      world.RunUntil([&] { return client.closings == 1 && world.server.poller().connection_count() == 0; }));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kCancelled));
}

TEST(ReentrancyTest, AnObserverMayDestroyItselfAndDialAnewInOnClosed) {
  World world;
  class SelfDestroying final : public ConnectionObserver {
   public:
    SelfDestroying(World& world, std::vector<absl::Status>& ends) : world_(world), ends_(ends) {}
    void OnReady(const Handshake&) override {}
    void OnClosed(const absl::Status& why) override {
      ends_.push_back(why);
      if (ends_.size() < 3) {
        auto* next = new SelfDestroying(world_, ends_);
        EXPECT_THAT(Connection::Dial(world_.client.poller(), TestAddress(1), {}, Handshake(),
                                     absl::Seconds(2), *next, nullptr),
                    IsOk());
      }
      delete this;
    }

   private:
    World& world_;
    std::vector<absl::Status>& ends_;
  };
  std::vector<absl::Status> ends;
  auto* first = new SelfDestroying(world, ends);
  world.OnClient([&] {
    EXPECT_THAT(Connection::Dial(world.client.poller(), TestAddress(1), {}, Handshake(), absl::Seconds(2),
                                 *first, nullptr),
                IsOk());
  });
  ASSERT_TRUE(world.RunUntil([&] { return ends.size() == 3; }));
  world.Settle();
  EXPECT_EQ(world.client.poller().connection_count(), 0u);
}

TEST(ReentrancyTest, AServerMayRespondCloseOrDrainFromInsideOnRequest) {
  for (int what = 0; what < 3; ++what) {
    World world;
    world.client.fabric->OfferNoCredits();  // The client sends all requests before the first answer.
    Link link(world);
    Warm(link);
    link.server.answer = [&](RecordingServer::Request request) {
      if (what == 0) link.server_end->Close();
      if (what == 1) link.server_end->Drain();
      link.Echo(std::move(request));
      if (what == 2) link.server_end->Close();
    };
    PendingCall calls[3];
    for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 8), IsOk());
    ASSERT_TRUE(world.RunUntil([&] { return calls[0].done() && calls[1].done() && calls[2].done(); }));
    for (PendingCall& call : calls) EXPECT_EQ(call.ends, 1);
    EXPECT_EQ(link.server_counts().taken_sends > 0, IsOffered());
    if (what == 1) {
      for (PendingCall& call : calls) EXPECT_THAT(call.response, IsOk()) << "drained, not closed";
      world.OnClient([&] { link.client_end->Drain(); });
    }
    ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  }
}

TEST(ReentrancyTest, ALateAnswerToAConnectionThatIsFlushingIsDropped) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnServer([&] {
    link.server_end->Close();
    EXPECT_THAT(link.Respond(link.server.requests[0].id, kMiB), IsOk());
  });
}

TEST(ReentrancyTest, TheSameRequestAnsweredTwiceIsAnsweredOnce) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall first, second;
  ASSERT_THAT(link.Send(first, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  link.RespondEmpty(link.server.requests[0].id);
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return first.done(); }));
  ASSERT_THAT(link.Send(second, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 2; }));
  link.RespondEmpty(link.server.requests[0].id);  // This answers the slot's earlier exchange.
  world.Settle();
  EXPECT_FALSE(second.done());
  EXPECT_FALSE(link.closed());
}

}  // namespace
}  // namespace hawser::transport
