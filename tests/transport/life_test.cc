// How connections begin, and keepalive.
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/sharing/watch_interval.h"

namespace hawser::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A connection of the client that the test dials itself.
class DialTest : public ::testing::Test {
 protected:
  ~DialTest() override {
    if (end != nullptr && observer.closings == 0) world.OnClient([&] { end->Close(); });
    EXPECT_TRUE(world.RunUntil([&] { return end == nullptr || observer.closings == 1; }));
    EXPECT_EQ(world.client.poller().connection_count(), 0u);
    EXPECT_EQ(world.LeasedBytes(), 0u);
  }

  void Dial(const SocketAddress& address, absl::Duration timeout = absl::Seconds(2)) {
    world.OnClient([&] {
      absl::StatusOr<Connection*> dialed =
          Connection::Dial(world.client.poller(), address, {}, Handshake(), timeout, observer, nullptr);
      ASSERT_THAT(dialed, IsOk());
      end = *dialed;
    });
  }
  bool AwaitClosed() {
    return world.RunUntil([&] { return observer.closings == 1; });
  }

  World world;
  RecordingObserver observer;
  Connection* end = nullptr;
};

// ---- Connecting.

TEST_F(DialTest, ToWhereNobodyListensIsUnavailable) {
  SocketAddress gone;
  { gone = TestListener(world, world.server).address(); }
  Dial(gone);
  ASSERT_TRUE(AwaitClosed());
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(*observer.closed), HasSubstr(gone.ToString()));
  EXPECT_FALSE(observer.ready.has_value());
}

TEST_F(DialTest, ARejectedOneHearsTheReasonAndItsCode) {
  TestListener listener(world, world.server);
  listener.on_peer = [](PeerRequest request) {
    request.Reject(absl::PermissionDeniedError("not on Sundays"));
  };
  Dial(listener.address());
  ASSERT_TRUE(AwaitClosed());
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Text(*observer.closed),
              AllOf(HasSubstr("not on Sundays"), HasSubstr(listener.address().ToString())));
}

TEST_F(DialTest, ARequestThatIsDroppedIsRejectedWithoutAReason) {
  TestListener listener(world, world.server);
  listener.on_peer = [](PeerRequest) {};
  Dial(listener.address());
  ASSERT_TRUE(AwaitClosed());
  // The same as if the server was killed at that moment.
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_NE(Text(*observer.closed), "");
}

TEST_F(DialTest, AListenerThatNeverAnswersIsGivenUpAtTheTimeout) {
  TestListener listener(world, world.server);  // Keeps the request.
  Dial(listener.address(), absl::Seconds(2));
  ASSERT_TRUE(world.RunUntil([&] { return !listener.waiting.empty(); }));
  world.Pass(absl::Milliseconds(1900), absl::Milliseconds(100));
  EXPECT_EQ(observer.closings, 0);
  world.Pass(absl::Milliseconds(200), absl::Milliseconds(100));
  ASSERT_TRUE(AwaitClosed());
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(*observer.closed), HasSubstr("no answer in time"));
}

TEST_F(DialTest, CloseWhileConnectingEndsIt) {
  TestListener listener(world, world.server);
  Dial(listener.address());
  world.OnClient([&] { end->Close(); });
  ASSERT_TRUE(AwaitClosed());
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kCancelled));
}

TEST_F(DialTest, DrainWhileConnectingEndsIt) {
  TestListener listener(world, world.server);
  Dial(listener.address());
  world.OnClient([&] { end->Drain(); });
  ASSERT_TRUE(AwaitClosed());
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kCancelled));
}

TEST_F(DialTest, NothingCanBeSentBeforeItIsReady) {
  TestListener listener(world, world.server);
  Dial(listener.address());
  PendingCall call;
  OutgoingMessagePtr request = world.client.messages().NewOutgoing();
  world.OnClient([&] {
    EXPECT_FALSE(end->CanSend());
    EXPECT_THAT(end->SendRequest(request, kNever, call).status(), HasCode(absl::StatusCode::kUnavailable));
    end->Cancel({0, 1});
  });
  EXPECT_FALSE(call.done());
}

TEST_F(DialTest, AnAnswerThatIsNoHandshakeEndsIt) {
  HostilePeer peer(world);
  Dial(peer.Listen("HTTP/1.1 400 Bad Request"));
  ASSERT_TRUE(AwaitClosed());
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Text(*observer.closed), HasSubstr("no Hawser handshake"));
}

TEST_F(DialTest, AnAnswerOfAnotherVersionEndsItWithBothVersions) {
  HostilePeer peer(world);
  Handshake other = HostilePeer::Hello();
  other.version = 9;
  Dial(peer.Listen(Encode(other)));
  ASSERT_TRUE(AwaitClosed());
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Text(*observer.closed), AllOf(HasSubstr("version 9"), HasSubstr("version 1")));
}

TEST_F(DialTest, AnAnswerThatNamesTheOtherRoleEndsIt) {
  HostilePeer peer(world);
  Dial(peer.Listen(Encode(HostilePeer::Hello(Role::kReverse))));
  ASSERT_TRUE(AwaitClosed());
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Text(*observer.closed), HasSubstr("accepted role 2, offered was role 1"));
}

TEST_F(DialTest, AnAnswerThatAsksForMoreThanWasOfferedGetsWhatWasOffered) {
  HostilePeer peer(world);
  Handshake greedy = HostilePeer::Hello();
  greedy.slots = kSlotsMax;
  greedy.receive_buffer_bytes = kReceiveBufferMax;
  Dial(peer.Listen(Encode(greedy)));
  ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value(); }));
  EXPECT_EQ(end->agreed().slots, 32);
  EXPECT_EQ(end->agreed().receive_buffer_bytes, 4096u);
}

TEST_F(DialTest, WhatTheServerSaysIsToldToTheObserver) {
  HostilePeer peer(world);
  Handshake answer = HostilePeer::Hello();
  answer.session = NewSessionToken(Environment::Real());
  Dial(peer.Listen(Encode(answer)));
  ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value(); }));
  EXPECT_EQ(observer.ready->session, answer.session);
  EXPECT_EQ(observer.ready->slots, 4);
}

// ---- Being dialed.

TEST(AcceptorTest, WhoIsNoPeerOfOursIsRejectedWithTheReason) {
  if (OverSiw())
    GTEST_SKIP() << "siw flushes before it says that it was rejected; HostilePeer ends at the flush";
  World world;
  TestListener listener(world, world.server);
  Handshake old = HostilePeer::Hello();
  old.version = 0;
  Handshake mad = HostilePeer::Hello();
  mad.slots = 0;
  Handshake claims_session = HostilePeer::Hello();
  claims_session.session[15] = 1;
  for (const auto& [data, reason] :
       std::vector<std::pair<std::string, std::string>>{{"GET / HTTP/1.1", "no Hawser handshake"},
                                                        {Encode(old), "version 0"},
                                                        {Encode(mad), "wants 0 slots"},
                                                        {Encode(claims_session), "names a session"}}) {
    HostilePeer stranger(world);
    stranger.Dial(listener.address(), data);
    ASSERT_TRUE(world.RunUntil([&] { return stranger.ended(); }));
    EXPECT_THAT(Text(DecodeRejection(stranger.private_data())), HasSubstr(reason));
    EXPECT_TRUE(listener.waiting.empty());
  }
}

TEST(AcceptorTest, AReadDepthOfZeroIsRejectedWithTheReason) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "what a device says of its READs is the device's";
  World world;
  TestListener listener(world, world.server);
  HostilePeer stranger(world, /*read_depth=*/0);
  stranger.Dial(listener.address(), Encode(HostilePeer::Hello()));
  ASSERT_TRUE(world.RunUntil([&] { return stranger.ended() || !listener.waiting.empty(); }));
  EXPECT_TRUE(listener.waiting.empty());
  EXPECT_THAT(Text(DecodeRejection(stranger.private_data())), HasSubstr("READ depth of 0"));
}

TEST(AcceptTest, AServerWithoutMemorySaysSoToTheCaller) {
  RuntimeOptions none;
  none.pool.limit_bytes = 4 * kMiB;
  World world({}, none);
  std::vector<Lease> hoard;
  for (size_t size : {1000, 4096}) {
    for (int i = 0; i < 2000; ++i) {
      absl::StatusOr<Lease> lease = world.server.buffers().Acquire(size);
      if (lease.ok()) hoard.push_back(*std::move(lease));
    }
  }
  for (int left : {0, 1}) {  // 0: no memory for control messages. 1: none for the ring.
    for (int i = 0; i < left; ++i) hoard.pop_back();
    TestListener listener(world, world.server);
    RecordingObserver client, server;
    RecordingServer handler;
    listener.on_peer = [&](PeerRequest request) {
      Connection::Accept(world.server.poller(), std::move(request), {}, NewSessionToken(Environment::Real()),
                         server, &handler)
          .status()
          .IgnoreError();
    };
    world.OnClient([&] {
      ASSERT_THAT(Connection::Dial(world.client.poller(), listener.address(), {}, Handshake(),
                                   absl::Seconds(2), client, nullptr),
                  IsOk());
    });
    ASSERT_TRUE(world.RunUntil([&] { return client.closings == 1; }));
    EXPECT_THAT(*client.closed, HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(Text(*client.closed), HasSubstr("memory"));
    EXPECT_TRUE(world.RunUntil([&] { return world.server.poller().connection_count() == 0; }));
  }
}

// More would cost the server memory that is never used.
TEST(AcceptTest, AClientIsOfferedNoMoreSlotsThanItAskedFor) {
  World world;
  TestListener listener(world, world.server);
  RecordingObserver observer;
  RecordingServer handler;
  listener.on_peer = [&](PeerRequest request) {
    EXPECT_THAT(Connection::Accept(world.server.poller(), std::move(request), {.slots = 64},
                                   NewSessionToken(Environment::Real()), observer, &handler),
                IsOk());
  };
  HostilePeer client(world);
  Handshake hello = HostilePeer::Hello();
  hello.slots = 2;
  client.Dial(listener.address(), Encode(hello));
  ASSERT_TRUE(world.RunUntil([&] { return client.established(); }));
  absl::StatusOr<Handshake> answer = DecodeAccept(client.private_data(), Role::kForward);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->slots, 2);
  client.Disconnect();
  EXPECT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
}

TEST(AcceptTest, ACallerThatVanishesBeforeTheEndOfTheHandshakeLeavesNothing) {
  World world;
  TestListener listener(world, world.server);
  RecordingObserver observer;
  RecordingServer handler;
  {
    HostilePeer caller(world);
    caller.Dial(listener.address(), Encode(HostilePeer::Hello()));
    ASSERT_TRUE(world.RunUntil([&] { return !listener.waiting.empty(); }));
  }
  world.OnServer([&] {
    PeerRequest request = std::move(listener.waiting[0]);
    ASSERT_THAT(Connection::Accept(world.server.poller(), std::move(request), {},
                                   NewSessionToken(Environment::Real()), observer, &handler),
                IsOk());
  });
  ASSERT_TRUE(world.RunUntil([&] {
    world.clock.Advance(absl::Milliseconds(10));
    return observer.closings == 1;
  }));
  EXPECT_EQ(world.server.poller().connection_count(), 0u);
  EXPECT_EQ(world.LeasedBytes(), 0u);
}

TEST(ReverseTest, TheSideThatDialedMayAnswerTheRequests) {
  World world;
  TestListener listener(world, world.server);
  RecordingObserver dialing, accepting;
  RecordingServer handler;
  Connection *dialed = nullptr, *accepted = nullptr;
  listener.on_peer = [&](PeerRequest request) {
    EXPECT_EQ(request.hello().role, Role::kReverse);
    const SessionToken session = request.hello().session;
    accepted =
        *Connection::Accept(world.server.poller(), std::move(request), {}, session, accepting, nullptr);
  };
  Handshake hello;
  hello.role = Role::kReverse;
  world.OnClient([&] {
    dialed = *Connection::Dial(world.client.poller(), listener.address(), {}, hello, absl::Seconds(2),
                               dialing, &handler);
  });
  ASSERT_TRUE(world.RunUntil([&] { return accepting.ready.has_value() && dialing.ready.has_value(); }));
  PendingCall call;
  world.OnServer([&] {
    OutgoingMessagePtr request = NewMessage(world.server.messages(), kMiB);
    ASSERT_THAT(accepted->SendRequest(request, kNever, call), IsOk());
  });
  ASSERT_TRUE(world.RunUntil([&] { return !handler.requests.empty(); }));
  EXPECT_EQ(Content(*handler.requests[0].message), ContentOf(kMiB));
  world.OnClient([&] {
    OutgoingMessagePtr response = NewMessage(world.client.messages(), 2 * kMiB);
    EXPECT_THAT(dialed->Respond(handler.requests[0].id, response), IsOk());
  });
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_EQ(Content(**call.response), ContentOf(2 * kMiB));
  world.OnServer([&] { accepted->Close(); });
  ASSERT_TRUE(world.RunUntil([&] { return dialing.closings == 1 && accepting.closings == 1; }));
}

// ---- Keepalive.

TEST(KeepaliveTest, AnIdleConnectionPingsAndLives) {
  World world;
  Link link(world);
  world.Pass(absl::Minutes(5), absl::Seconds(1));
  EXPECT_FALSE(link.closed());
  EXPECT_GE(link.client_counts().sends, 20u);
  EXPECT_LE(link.client_counts().sends, 100u);
}

// A poller with thousands of idle connections then wakes rarely.
TEST(KeepaliveTest, IdleConnectionsPingTogether) {
  constexpr absl::Duration kStep = absl::Milliseconds(50);
  World world;
  std::deque<Link> links;
  for (int i = 0; i < 8; ++i) {
    links.emplace_back(world);
    world.Pass(kStep, kStep);
  }
  const auto sends = [&] {
    uint64_t sum = 0;
    for (Link& link : links) sum += link.client_counts().sends;
    return sum;
  };
  world.Pass(absl::Seconds(11), kStep);  // Each connection sends its first ping at its own time.
  const uint64_t before = sends();
  int awake = 0;
  for (absl::Duration passed; passed < absl::Seconds(10); passed += kStep) {
    const uint64_t seen = sends();
    world.Pass(kStep, kStep);
    if (sends() != seen) ++awake;
  }
  EXPECT_GE(sends() - before, links.size());
  EXPECT_LE(awake, 4);  // Not 8: they were made within 0.4 s, and share points 0.16 s apart.
}

TEST(KeepaliveTest, ABusyConnectionDoesNotPing) {
  World world;
  Link link(world);
  link.EchoAll();
  for (int second = 0; second < 60; ++second) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), 8));
    world.Pass(absl::Seconds(1), absl::Seconds(1));
  }
  EXPECT_EQ(link.client_counts().sends, 60u);
  EXPECT_EQ(link.server_counts().sends, 60u);
}

// A device may hold back a message that arrives during the handshake until another one arrives.
TEST(KeepaliveTest, ANewConnectionWhoseFirstRequestIsNotAnsweredPingsEarlyAndOnce) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  world.Pass(absl::Milliseconds(90));
  EXPECT_EQ(link.client_counts().sends, 1u);
  world.Pass(absl::Milliseconds(20));
  EXPECT_EQ(link.client_counts().sends, 2u);
  EXPECT_EQ(link.server_counts().sends, 1u) << "the ping was not answered";
  world.Pass(absl::Seconds(9), absl::Milliseconds(100));
  EXPECT_EQ(link.client_counts().sends, 2u);
  link.RespondEmpty(link.server.requests.at(0).id);
  EXPECT_TRUE(world.RunUntil([&] { return call.done(); }));
}

TEST(KeepaliveTest, AClientThatIsIdleOrWasAnsweredDoesNotPingEarly) {
  World world;
  Link idle(world), answered(world), never(world, {.keepalive_interval = absl::InfiniteDuration()});
  answered.EchoAll();
  PendingCall first, second, unanswered;
  answered.Call(first, NewMessage(world.client.messages(), 8));
  answered.server.answer = nullptr;
  ASSERT_THAT(answered.Send(second, 8), IsOk());
  ASSERT_THAT(never.Send(unanswered, 8), IsOk());
  world.Pass(absl::Seconds(9), absl::Milliseconds(50));
  EXPECT_EQ(idle.client_counts().sends, 1u) << "the answer to the server's ping, and no other";
  EXPECT_EQ(idle.server_counts().sends, 1u);
  EXPECT_EQ(answered.client_counts().sends, 2u);
  EXPECT_EQ(never.client_counts().sends, 1u);
  answered.RespondEmpty(answered.server.requests.at(0).id);
  never.RespondEmpty(never.server.requests.at(0).id);
  EXPECT_TRUE(world.RunUntil([&] { return second.done() && unanswered.done(); }));
}

TEST(KeepaliveTest, AReadThatNeverCompletesEndsTheConnectionThoughThePeerAnswers) {
  for (const bool of_the_request : {true, false}) {
    World world;
    const size_t before = world.LeasedBytes();
    Link link(world);
    link.EchoAll();
    (of_the_request ? world.server : world.client).fabric->KeepBackReadCompletions(true);
    PendingCall call;
    ASSERT_THAT(link.Send(call, 1 << 20), IsOk());
    world.Pass(absl::Seconds(14), absl::Seconds(1));
    EXPECT_FALSE(call.done());
    world.Pass(absl::Seconds(12), absl::Seconds(1));
    ASSERT_TRUE(world.RunUntil([&] { return call.done() && link.closed(); }));
    EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
    const absl::Status why = of_the_request ? *link.server_observer.closed : *link.client_observer.closed;
    EXPECT_THAT(why, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_THAT(Text(why), AllOf(HasSubstr("READ of 262144 bytes"), HasSubstr("not completed for 15s")));
    EXPECT_EQ(world.LeasedBytes(), before);
  }
}

// A large request whose READs do not complete.
class StuckReadTest : public ::testing::Test {
 protected:
  StuckReadTest() {
    link.EchoAll();
    world.server.fabric->KeepBackReadCompletions(true);
    EXPECT_THAT(link.Send(call, 1 << 20), IsOk());
  }

  World world;
  Link link{world};
  PendingCall call;
};

// As above, while what others call holds the poller whenever it has to look.
TEST_F(StuckReadTest, ALatePollerGivesItNoTimeWithoutEnd) {
  // A ping is due 10 s after the last one, or a little later, and late is more than a quarter of 5 s.
  const absl::Duration held = absl::Milliseconds(11'500);
  int times = 0;
  for (; times < 40 && link.server_observer.closings == 0; ++times) {
    world.clock.Advance(held);
    world.Settle();
  }
  EXPECT_EQ(times, WatchInterval::kNotCountedMax + 2) << "a late poller does give it time";
  ASSERT_EQ(link.server_observer.closings, 1);
  EXPECT_THAT(Text(*link.server_observer.closed), HasSubstr("READ of 262144 bytes"));
}

TEST(KeepaliveTest, APeerThatIsBusyAgainHasItsWholeTimeAgain) {
  World world;
  Link link(world, {.keepalive_interval = absl::Seconds(1),
                    .keepalive_timeout = absl::Milliseconds(500),
                    .busy_timeout = absl::Seconds(4)});
  // Only the client has its turns.
  const auto is_busy_for = [&](absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Milliseconds(50)) {
      world.clock.Advance(absl::Milliseconds(50));
      world.client.poller().PollOnce();
      if (link.client_observer.losses != 0) return;
      world.OnClient([&] { link.client_end->PeerIsBusy("its poller is held"); });
    }
  };
  for (int time = 1; time <= 3; ++time) {
    SCOPED_TRACE(time);
    is_busy_for(absl::Seconds(3));
    ASSERT_EQ(link.client_observer.losses, 0);
    world.Pass(absl::Milliseconds(200), absl::Milliseconds(50));
    ASSERT_EQ(link.client_observer.losses, 0);
    EXPECT_EQ(link.client_end->peer_is_busy(), "");
  }
  is_busy_for(absl::Seconds(6));
  ASSERT_EQ(link.client_observer.losses, 1);
  EXPECT_THAT(Text(*link.client_observer.lost), HasSubstr("has not answered for 4s"));
}

// A transfer that makes progress, however slowly, must not end the connection.
TEST_F(StuckReadTest, OneThatCompletesLateEndsNothing) {
  world.Pass(absl::Seconds(14), absl::Seconds(1));
  world.server.fabric->KeepBackReadCompletions(false);
  world.Pass(absl::Seconds(14), absl::Seconds(1));
  EXPECT_TRUE(call.done() && call.response.ok()) << call.status();
  EXPECT_FALSE(link.closed());
}

// The server pings it after 100 ms, and keeps memory for it only until the ping times out.
TEST(KeepaliveTest, AClientThatHasNeverSpokenIsFoundDeadInFiveSeconds) {
  World world;
  TestListener listener(world, world.server);
  RecordingObserver observer;
  RecordingServer handler;
  listener.on_peer = [&](PeerRequest request) {
    ASSERT_THAT(Connection::Accept(world.server.poller(), std::move(request), {},
                                   NewSessionToken(Environment::Real()), observer, &handler),
                IsOk());
  };
  HostilePeer peer(world);
  peer.Dial(listener.address(), Encode(HostilePeer::Hello()));
  ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value(); }));
  world.Pass(absl::Seconds(5), absl::Milliseconds(50));
  EXPECT_EQ(observer.closings, 0);
  world.Pass(absl::Milliseconds(200), absl::Milliseconds(50));
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(*observer.closed), AllOf(HasSubstr(peer.address()), HasSubstr("has not answered a ping")));
}

TEST_F(DialTest, APeerThatFallsSilentWithACallInFlightIsFoundDead) {
  HostilePeer peer(world);
  Dial(peer.Listen(Encode(HostilePeer::Hello())));
  ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value(); }));
  PendingCall call;
  world.OnClient([&] {
    OutgoingMessagePtr request = NewMessage(world.client.messages(), 8);
    ASSERT_THAT(end->SendRequest(request, kNever, call), IsOk());
  });
  // The early ping at its first request does not shorten its time.
  world.Pass(absl::Seconds(14), absl::Milliseconds(50));
  EXPECT_FALSE(call.done()) << call.status();
  world.Pass(absl::Seconds(2), absl::Milliseconds(50));
  ASSERT_TRUE(AwaitClosed());
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(call.status()), HasSubstr("has not answered a ping"));
}

TEST_F(DialTest, APeerThatAnswersThePingsLivesThoughItAnswersNoCall) {
  HostilePeer peer(world);
  Dial(peer.Listen(Encode(HostilePeer::Hello())));
  ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value(); }));
  PendingCall call;
  world.OnClient([&] {
    OutgoingMessagePtr request = NewMessage(world.client.messages(), 8);
    ASSERT_THAT(end->SendRequest(request, kNever, call), IsOk());
  });
  uint32_t pings = 0;
  for (int second = 0; second < 100; ++second) {
    world.Pass(absl::Seconds(1), absl::Seconds(1));
    if (peer.received().size() > 1 + pings) peer.Send(RawControlAck(++pings));
  }
  EXPECT_GE(pings, 8u);
  EXPECT_EQ(observer.closings, 0);
  EXPECT_FALSE(call.done());
  world.OnClient([&] { end->Close(); });  // The call is destroyed with this scope.
}

}  // namespace
}  // namespace hawser::transport
