// How connections begin and end, and that whatever ends them leaves nothing behind.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;

#define EXPECT_CODE(status, expected) EXPECT_EQ((status).code(), absl::StatusCode::expected) << (status)

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// A connection of the client's side that a test dials by itself.
class DialTest : public ::testing::Test {
 protected:
  ~DialTest() override {
    if (end != nullptr && observer.closings == 0) world.OnClient([&] { end->Close(); });
    EXPECT_TRUE(world.RunUntil([&] { return end == nullptr || observer.closings == 1; }));
    EXPECT_EQ(world.client.poller().connection_count(), 0u);
    EXPECT_EQ(world.LeasedBytes(), 0u);
  }

  void Dial(const fabric::SocketAddress& address, absl::Duration timeout = absl::Seconds(2)) {
    world.OnClient([&] {
      absl::StatusOr<Connection*> dialed =
          Connection::Dial(world.client.poller(), address, {}, Handshake(), timeout, observer, nullptr);
      ASSERT_TRUE(dialed.ok()) << dialed.status();
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
  fabric::SocketAddress gone;
  { gone = TestListener(world, world.server).address(); }
  Dial(gone);
  ASSERT_TRUE(AwaitClosed());
  EXPECT_CODE(*observer.closed, kUnavailable);
  EXPECT_THAT(Text(*observer.closed), HasSubstr(gone.ToString()));
  EXPECT_FALSE(observer.ready.has_value());
}

TEST_F(DialTest, ARejectedOneHearsTheReasonAndItsCode) {
  TestListener listener(world, world.server);
  listener.on_peer = [](std::unique_ptr<fabric::ConnectRequest> request, const Handshake&) {
    Reject(*request, absl::PermissionDeniedError("not on Sundays"));
  };
  Dial(listener.address());
  ASSERT_TRUE(AwaitClosed());
  EXPECT_CODE(*observer.closed, kPermissionDenied);
  EXPECT_THAT(Text(*observer.closed),
              AllOf(HasSubstr("not on Sundays"), HasSubstr(listener.address().ToString())));
}

TEST_F(DialTest, ARequestThatIsDroppedIsRejectedWithoutAReason) {
  TestListener listener(world, world.server);
  listener.on_peer = [](std::unique_ptr<fabric::ConnectRequest>, const Handshake&) {};
  Dial(listener.address());
  ASSERT_TRUE(AwaitClosed());
  EXPECT_CODE(*observer.closed, kUnavailable);  // As of a server that was killed just then.
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
  EXPECT_CODE(*observer.closed, kUnavailable);
  EXPECT_THAT(Text(*observer.closed), HasSubstr("no answer in time"));
}

TEST_F(DialTest, CloseWhileConnectingEndsIt) {
  TestListener listener(world, world.server);
  Dial(listener.address());
  world.OnClient([&] { end->Close(); });
  ASSERT_TRUE(AwaitClosed());
  EXPECT_CODE(*observer.closed, kCancelled);
}

TEST_F(DialTest, DrainWhileConnectingEndsIt) {
  TestListener listener(world, world.server);
  Dial(listener.address());
  world.OnClient([&] { end->Drain(); });
  ASSERT_TRUE(AwaitClosed());
  EXPECT_CODE(*observer.closed, kCancelled);
}

TEST_F(DialTest, NothingCanBeSentBeforeItIsReady) {
  TestListener listener(world, world.server);
  Dial(listener.address());
  PendingCall call;
  OutgoingMessagePtr request = world.client.messages().NewOutgoing();
  world.OnClient([&] {
    EXPECT_FALSE(end->CanSend());
    EXPECT_CODE(end->SendRequest(request, kNever, call).status(), kUnavailable);
    end->Cancel({0, 1});
  });
  EXPECT_FALSE(call.done());
}

TEST_F(DialTest, AnAnswerThatIsNoHandshakeEndsIt) {
  HostilePeer peer(world);
  Dial(peer.Listen("HTTP/1.1 400 Bad Request"));
  ASSERT_TRUE(AwaitClosed());
  EXPECT_CODE(*observer.closed, kInvalidArgument);
  EXPECT_THAT(Text(*observer.closed), HasSubstr("no Hawser handshake"));
}

TEST_F(DialTest, AnAnswerOfAnotherVersionEndsItWithBothVersions) {
  HostilePeer peer(world);
  Handshake other = HostilePeer::Hello();
  other.version = 9;
  Dial(peer.Listen(Encode(other)));
  ASSERT_TRUE(AwaitClosed());
  EXPECT_CODE(*observer.closed, kFailedPrecondition);
  EXPECT_THAT(Text(*observer.closed), AllOf(HasSubstr("version 9"), HasSubstr("version 1")));
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
  for (const auto& [data, reason] :
       std::vector<std::pair<std::string, std::string>>{{"GET / HTTP/1.1", "no Hawser handshake"},
                                                        {Encode(old), "version 0"},
                                                        {Encode(mad), "wants 0 slots"}}) {
    HostilePeer stranger(world);
    stranger.Dial(listener.address(), data);
    ASSERT_TRUE(world.RunUntil([&] { return stranger.ended(); }));
    EXPECT_THAT(Text(DecodeRejection(stranger.private_data())), HasSubstr(reason));
    EXPECT_TRUE(listener.waiting.empty());
  }
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
  for (int left : {0, 4}) {  // Not even for control; not for the ring.
    for (int i = 0; i < left; ++i) hoard.pop_back();
    TestListener listener(world, world.server);
    RecordingObserver client, server;
    RecordingServer handler;
    listener.on_peer = [&](std::unique_ptr<fabric::ConnectRequest> request, const Handshake& hello) {
      Connection::Accept(world.server.poller(), std::move(request), {}, hello,
                         NewSessionToken(Environment::Real()), server, &handler)
          .status()
          .IgnoreError();
    };
    world.OnClient([&] {
      ASSERT_TRUE(Connection::Dial(world.client.poller(), listener.address(), {}, Handshake(),
                                   absl::Seconds(2), client, nullptr)
                      .ok());
    });
    ASSERT_TRUE(world.RunUntil([&] { return client.closings == 1; }));
    EXPECT_CODE(*client.closed, kResourceExhausted);
    EXPECT_THAT(Text(*client.closed), HasSubstr("memory"));
    EXPECT_TRUE(world.RunUntil([&] { return world.server.poller().connection_count() == 0; }));
  }
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
    auto [request, hello] = std::move(listener.waiting[0]);
    ASSERT_TRUE(Connection::Accept(world.server.poller(), std::move(request), {}, hello,
                                   NewSessionToken(Environment::Real()), observer, &handler)
                    .ok());
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
  listener.on_peer = [&](std::unique_ptr<fabric::ConnectRequest> request, const Handshake& hello) {
    EXPECT_EQ(hello.role, Role::kReverse);
    accepted = *Connection::Accept(world.server.poller(), std::move(request), {}, hello, hello.session,
                                   accepting, nullptr);
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
    ASSERT_TRUE(accepted->SendRequest(request, kNever, call).ok());
  });
  ASSERT_TRUE(world.RunUntil([&] { return !handler.requests.empty(); }));
  EXPECT_EQ(Content(*handler.requests[0].message), ContentOf(kMiB));
  world.OnClient([&] {
    OutgoingMessagePtr response = NewMessage(world.client.messages(), 2 * kMiB);
    EXPECT_TRUE(dialed->Respond(handler.requests[0].id, response).ok());
  });
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_EQ(Content(**call.response), ContentOf(2 * kMiB));
  world.OnServer([&] { accepted->Close(); });
  ASSERT_TRUE(world.RunUntil([&] { return dialing.closings == 1 && accepting.closings == 1; }));
}

// Small ones are found to be in vain when they are posted, at the end of the turn.
TEST(EndTest, ALargeMessageOnAQueuePairThatHasJustFailedIsUnavailableAndSoAreTheCallsInFlight) {
  World world;
  {
    Link link(world);
    PendingCall in_flight, refused;
    ASSERT_TRUE(link.Send(in_flight, 100).ok());
    ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
    absl::Status sent, answered;
    world.OnClient([&] {
      link.client_end->queue_pair().Disconnect();
      sent = link.Send(refused, kMiB);
    });
    EXPECT_CODE(sent, kUnavailable);
    world.OnServer([&] {
      link.server_end->queue_pair().Disconnect();
      answered = link.Respond(link.server.requests[0].id, kMiB);
    });
    EXPECT_TRUE(answered.ok()) << answered;  // Late, which is fine.
    ASSERT_TRUE(world.RunUntil([&] { return link.closed() && in_flight.done(); }));
    EXPECT_CODE(in_flight.response.status(), kUnavailable);
    EXPECT_EQ(link.client_counts().grants, 0);
    link.client_end = link.server_end = nullptr;
  }
  world.Settle();
  EXPECT_EQ(world.LeasedBytes(), 0u);
}

// ---- Ending with calls in flight. In each state of an exchange, on either side.

enum class Ending { kClientCloses, kServerCloses, kClientDies, kServerDies };
enum class Moment {
  kIdle,
  kRequestQueued,
  kRequestRead,  // By the server, a large one.
  kRunning,
  kResponseRead,  // By the client, a large one.
  kResponseKept,  // A large one that was READ, not yet released.
  kResponseQueued,
  kClientWantsMemory,
  kServerWantsMemory,
};

class EndingTest : public ::testing::TestWithParam<std::tuple<Ending, Moment>> {};

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Ending, Moment>>& cell) {
  const char* const endings[] = {"ClientCloses", "ServerCloses", "ClientDies", "ServerDies"};
  const char* const moments[] = {"Idle",           "RequestQueued",     "RequestRead",
                                 "Running",        "ResponseRead",      "ResponseKept",
                                 "ResponseQueued", "ClientWantsMemory", "ServerWantsMemory"};
  return std::string(endings[static_cast<int>(std::get<0>(cell.param))]) + "While" +
         moments[static_cast<int>(std::get<1>(cell.param))];
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, EndingTest,
    ::testing::Combine(::testing::Values(Ending::kClientCloses, Ending::kServerCloses, Ending::kClientDies,
                                         Ending::kServerDies),
                       ::testing::Values(Moment::kIdle, Moment::kRequestQueued, Moment::kRequestRead,
                                         Moment::kRunning, Moment::kResponseRead, Moment::kResponseKept,
                                         Moment::kResponseQueued, Moment::kClientWantsMemory,
                                         Moment::kServerWantsMemory)),
    NameOf);

TEST_P(EndingTest, EveryCallEndsOnceBothObserversHearOnceAndEverythingComesHome) {
  const auto [ending, moment] = GetParam();
  RuntimeOptions pool;
  pool.pool.limit_bytes = 128 * kMiB;
  World world(pool, pool);
  std::vector<Lease> hoard;
  const auto exhaust = [&](BufferPool& buffers) {
    while (true) {
      absl::StatusOr<Lease> lease = buffers.Acquire(kMiB);
      if (!lease.ok()) return;
      hoard.push_back(*std::move(lease));
    }
  };
  PendingCall call;
  call.wants_request_back = true;
  bool answered = false;
  {
    Link link(world, {.slots = 2});
    const bool large_request = moment == Moment::kRequestRead || moment == Moment::kServerWantsMemory;
    OutgoingMessagePtr request = NewMessage(world.client.messages(), large_request ? 64 * kMiB : 100);
    if (moment == Moment::kServerWantsMemory) exhaust(world.server.buffers());
    const auto end = [&] {
      switch (ending) {
        case Ending::kClientCloses:
          return world.OnClient([&] { link.client_end->Close(); });
        case Ending::kServerCloses:
          return world.OnServer([&] { link.server_end->Close(); });
        case Ending::kClientDies:
          return world.OnClient([&] { link.client_end->queue_pair().Disconnect(); });
        case Ending::kServerDies:
          return world.OnServer([&] { link.server_end->queue_pair().Disconnect(); });
      }
    };
    switch (moment) {
      case Moment::kIdle:
        break;
      case Moment::kRequestQueued:
        world.OnClient([&] {
          ASSERT_TRUE(link.Send(call, std::move(request)).ok());
          end();  // Before anything was posted, if it is the client's.
        });
        break;
      case Moment::kRequestRead:
        ASSERT_TRUE(link.Send(call, std::move(request)).ok());
        ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads > 3; }));
        break;
      case Moment::kServerWantsMemory:
        ASSERT_TRUE(link.Send(call, std::move(request)).ok());
        world.Settle();
        ASSERT_EQ(link.server.request_count, 0u);
        break;
      default:
        ASSERT_TRUE(link.Send(call, std::move(request)).ok());
        ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
        break;
    }
    switch (moment) {
      case Moment::kResponseRead:
        ASSERT_TRUE(link.Respond(link.server.requests[0].id, 64 * kMiB).ok());
        ASSERT_TRUE(world.RunUntil([&] { return link.client_counts().reads > 3; }));
        break;
      case Moment::kResponseKept:
        ASSERT_TRUE(link.Respond(link.server.requests[0].id, kMiB).ok());
        ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
        answered = true;
        break;
      case Moment::kResponseQueued:
        world.OnServer([&] {
          ASSERT_TRUE(link.Respond(link.server.requests[0].id, kMiB).ok());
          end();
        });
        break;
      case Moment::kClientWantsMemory:
        exhaust(world.client.buffers());
        ASSERT_TRUE(link.Respond(link.server.requests[0].id, 64 * kMiB).ok());
        world.Settle();
        ASSERT_FALSE(call.done());
        break;
      default:
        break;
    }
    end();
    ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
    world.Settle();
    EXPECT_EQ(link.client_observer.closings, 1);
    EXPECT_EQ(link.server_observer.closings, 1);
    EXPECT_LE(link.server.cancelled.size(), 1u);
    if (moment == Moment::kRunning) {
      ASSERT_EQ(link.server.cancelled.size(), 1u) << "the handler was not told that nobody waits";
      // It answers all the same, late.
      EXPECT_EQ(world.server.poller().connection_count(), 0u);
    }
    link.client_end = link.server_end = nullptr;
    if (moment != Moment::kIdle) {
      EXPECT_EQ(call.ends, 1);
      if (!call.response.ok()) {
        EXPECT_EQ(call.status().code(), ending == Ending::kClientCloses ? absl::StatusCode::kCancelled
                                                                        : absl::StatusCode::kUnavailable)
            << call.status();
      }
      // As long as the response is not there, all of it, the request may be sent again.
      if (moment == Moment::kRunning || moment == Moment::kResponseRead ||
          moment == Moment::kClientWantsMemory) {
        EXPECT_NE(call.request_back, nullptr);
      }
      EXPECT_EQ(answered, call.response.ok());
    }
  }
  call.request_back.reset();
  call.response = absl::UnknownError("let go");
  hoard.clear();
  EXPECT_EQ(world.LeasedBytes(), 0u);
  EXPECT_EQ(world.client.poller().connection_count(), 0u);
  EXPECT_EQ(world.server.poller().connection_count(), 0u);
  EXPECT_EQ(world.client.poller().read_budget().taken_bytes(), 0u);
  EXPECT_EQ(world.server.poller().read_budget().taken_bytes(), 0u);
  // Nothing of it is left in the pollers either: the next connection works.
  Link next(world);
  next.EchoAll();
  PendingCall after;
  next.Call(after, NewMessage(world.client.messages(), kMiB));
  EXPECT_TRUE(after.response.ok());
}

TEST(PeerDeathTest, AllCallsInFlightHearAtOnceWhenThePeerDies) {
  World world;
  Link link(world);
  const std::string peer = link.client_end->peer();
  std::vector<PendingCall> calls(32);
  for (PendingCall& call : calls) ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 32; }));
  world.OnServer([&] { link.server_end->Close(); });
  ASSERT_TRUE(world.RunUntil([&] { return calls[0].done(); }));
  for (PendingCall& call : calls) {
    EXPECT_CODE(call.status(), kUnavailable);
    EXPECT_THAT(Text(call.status()), HasSubstr(peer));
  }
  EXPECT_EQ(link.server.cancelled.size(), 32u);
}

// ---- Reentrancy: whoever is called back does what he likes.

TEST(ReentrancyTest, AHandlerMayCloseFromInsideItsResponse) {
  World world;
  Link link(world);
  link.EchoAll();
  PendingCall first, second;
  first.on_response = [&] { link.client_end->Close(); };
  ASSERT_TRUE(link.Send(first, 8).ok());
  ASSERT_TRUE(link.Send(second, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_TRUE(first.response.ok());
  EXPECT_EQ(first.ends, 1);
  EXPECT_EQ(second.ends, 1);
}

TEST(ReentrancyTest, AHandlerThatHearsOfAFailureMaySendCloseCancelAndDrain) {
  World world;
  Link link(world);
  std::vector<PendingCall> calls(8);
  PendingCall retry;
  for (PendingCall& call : calls) {
    ASSERT_TRUE(link.Send(call, 8).ok());
    call.on_response = [&] {
      EXPECT_CODE(link.Send(retry, 8), kCancelled);
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
  link.EchoAll();
  link.client_observer.on_slot_free = [&] { link.client_end->Close(); };
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_EQ(call.ends, 1);
}

TEST(ReentrancyTest, OnReadyMaySendAndClose) {
  World world;
  TestListener listener(world, world.server);
  RecordingObserver client, server;
  RecordingServer handler;
  listener.on_peer = [&](std::unique_ptr<fabric::ConnectRequest> request, const Handshake& hello) {
    ASSERT_TRUE(Connection::Accept(world.server.poller(), std::move(request), {}, hello,
                                   NewSessionToken(Environment::Real()), server, &handler)
                    .ok());
  };
  Connection* end = nullptr;
  PendingCall call;
  client.on_ready = [&] {
    OutgoingMessagePtr request = NewMessage(world.client.messages(), 8);
    EXPECT_TRUE(end->SendRequest(request, kNever, call).ok());
    end->Close();
  };
  world.OnClient([&] {
    end = *Connection::Dial(world.client.poller(), listener.address(), {}, Handshake(), absl::Seconds(2),
                            client, nullptr);
  });
  ASSERT_TRUE(
      world.RunUntil([&] { return client.closings == 1 && world.server.poller().connection_count() == 0; }));
  EXPECT_CODE(call.status(), kCancelled);
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
        EXPECT_TRUE(Connection::Dial(world_.client.poller(), TestAddress(1), {}, Handshake(),
                                     absl::Seconds(2), *next, nullptr)
                        .ok());
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
    EXPECT_TRUE(Connection::Dial(world.client.poller(), TestAddress(1), {}, Handshake(), absl::Seconds(2),
                                 *first, nullptr)
                    .ok());
  });
  ASSERT_TRUE(world.RunUntil([&] { return ends.size() == 3; }));
  world.Settle();
  EXPECT_EQ(world.client.poller().connection_count(), 0u);
}

TEST(ReentrancyTest, AServerMayRespondCloseOrDrainFromInsideOnRequest) {
  for (int what = 0; what < 3; ++what) {
    World world;
    Link link(world);
    link.server.answer = [&](RecordingServer::Request request) {
      if (what == 0) link.server_end->Close();
      if (what == 1) link.server_end->Drain();
      link.Echo(std::move(request));
      if (what == 2) link.server_end->Close();
    };
    PendingCall calls[3];
    for (PendingCall& call : calls) ASSERT_TRUE(link.Send(call, 8).ok());
    ASSERT_TRUE(world.RunUntil([&] { return calls[0].done() && calls[1].done() && calls[2].done(); }));
    for (PendingCall& call : calls) EXPECT_EQ(call.ends, 1);
    if (what == 1) {
      for (PendingCall& call : calls) EXPECT_TRUE(call.response.ok()) << "drained, not closed";
      world.OnClient([&] { link.client_end->Drain(); });
    }
    ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  }
}

TEST(ReentrancyTest, ALateAnswerToAConnectionThatIsFlushingIsDropped) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnServer([&] {
    link.server_end->Close();
    EXPECT_TRUE(link.Respond(link.server.requests[0].id, kMiB).ok());
  });
}

TEST(ReentrancyTest, TheSameRequestAnsweredTwiceIsAnsweredOnce) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall first, second;
  ASSERT_TRUE(link.Send(first, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  link.RespondEmpty(link.server.requests[0].id);
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return first.done(); }));
  ASSERT_TRUE(link.Send(second, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 2; }));
  link.RespondEmpty(link.server.requests[0].id);  // Of the earlier exchange of the slot.
  world.Settle();
  EXPECT_FALSE(second.done());
  EXPECT_FALSE(link.closed());
}

// ---- Draining.

TEST(DrainTest, AnIdleConnectionClosesAtOnce) {
  for (bool client : {true, false}) {
    World world;
    Link link(world);
    if (client) {
      world.OnClient([&] { link.client_end->Drain(); });
    } else {
      world.OnServer([&] { link.server_end->Drain(); });
    }
    ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
    EXPECT_CODE(client ? *link.client_observer.closed : *link.server_observer.closed, kCancelled);
  }
}

TEST(DrainTest, TheClientWaitsForTheAnswersAndSendsNothingNew) {
  World world;
  Link link(world);
  PendingCall running, refused;
  ASSERT_TRUE(link.Send(running, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnClient([&] { link.client_end->Drain(); });
  EXPECT_FALSE(link.client_end->CanSend());
  EXPECT_CODE(link.Send(refused, 8), kUnavailable);
  world.Settle();
  EXPECT_EQ(link.client_observer.closings, 0);
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, 3 * kMiB).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  ASSERT_TRUE(running.response.ok()) << running.status();
  EXPECT_EQ(Content(**running.response), ContentOf(3 * kMiB));
}

TEST(DrainTest, TheServerTellsTheClientAndWaitsForItsHandlers) {
  World world;
  Link link(world);
  PendingCall calls[3];
  for (PendingCall& call : calls) ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 3; }));
  world.OnServer([&] { link.server_end->Drain(); });
  ASSERT_TRUE(world.RunUntil([&] { return link.client_observer.going_aways == 1; }));
  world.Settle();
  EXPECT_EQ(link.server_observer.closings, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(link.server_observer.closings, 0);
    link.RespondEmpty(link.server.requests[i].id);
  }
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  for (PendingCall& call : calls) EXPECT_TRUE(call.response.ok()) << call.status();
  EXPECT_EQ(link.client_observer.going_aways, 1);
}

TEST(DrainTest, ARequestOnItsWayWhenTheServerDrainsIsAnswered) {
  World world;
  Link link(world);
  link.EchoAll();
  PendingCall call;
  world.OnServer([&] { link.server_end->Drain(); });
  ASSERT_TRUE(link.Send(call, 8).ok());  // The client has not heard yet.
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_TRUE(call.response.ok()) << call.status();
}

TEST(DrainTest, TheServerWaitsUntilItsLargeResponseWasRead) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, 64 * kMiB).ok());
  world.OnServer([&] { link.server_end->Drain(); });
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  ASSERT_TRUE(call.response.ok()) << call.status();
  EXPECT_EQ((*call.response)->body_bytes(), 64 * kMiB);
  world.Pass(absl::Milliseconds(2));
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_CODE(*link.server_observer.closed, kCancelled);
}

TEST(DrainTest, BothSidesAtOnceCloseToo) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnServer([&] { link.server_end->Drain(); });
  world.OnClient([&] { link.client_end->Drain(); });
  world.Settle();
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, kMiB).ok());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_TRUE(call.response.ok()) << call.status();
  world.Pass(absl::Milliseconds(2));
  EXPECT_TRUE(world.RunUntil([&] { return link.closed(); }));
}

TEST(DrainTest, TwiceIsOnce) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  for (int i = 0; i < 3; ++i) {
    world.OnServer([&] { link.server_end->Drain(); });
    world.Settle();
  }
  EXPECT_EQ(link.client_observer.going_aways, 1);
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
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

TEST(KeepaliveTest, ASilentPeerIsFoundDeadByTheServer) {
  World world;
  TestListener listener(world, world.server);
  RecordingObserver observer;
  RecordingServer handler;
  listener.on_peer = [&](std::unique_ptr<fabric::ConnectRequest> request, const Handshake& hello) {
    ASSERT_TRUE(Connection::Accept(world.server.poller(), std::move(request), {}, hello,
                                   NewSessionToken(Environment::Real()), observer, &handler)
                    .ok());
  };
  HostilePeer peer(world);
  peer.Dial(listener.address(), Encode(HostilePeer::Hello()));
  ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value(); }));
  world.Pass(absl::Seconds(14), absl::Seconds(1));
  EXPECT_EQ(observer.closings, 0);
  world.Pass(absl::Seconds(3), absl::Seconds(1));
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_CODE(*observer.closed, kUnavailable);
  EXPECT_THAT(Text(*observer.closed), AllOf(HasSubstr(peer.address()), HasSubstr("has not answered a ping")));
}

TEST_F(DialTest, APeerThatFallsSilentWithACallInFlightIsFoundDead) {
  HostilePeer peer(world);
  Dial(peer.Listen(Encode(HostilePeer::Hello())));
  ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value(); }));
  PendingCall call;
  world.OnClient([&] {
    OutgoingMessagePtr request = NewMessage(world.client.messages(), 8);
    ASSERT_TRUE(end->SendRequest(request, kNever, call).ok());
  });
  world.Pass(absl::Seconds(17), absl::Seconds(1));
  ASSERT_TRUE(AwaitClosed());
  EXPECT_CODE(call.status(), kUnavailable);
  EXPECT_THAT(Text(call.status()), HasSubstr("has not answered a ping"));
}

TEST_F(DialTest, APeerThatAnswersThePingsLivesThoughItAnswersNoCall) {
  HostilePeer peer(world);
  Dial(peer.Listen(Encode(HostilePeer::Hello())));
  ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value(); }));
  PendingCall call;
  world.OnClient([&] {
    OutgoingMessagePtr request = NewMessage(world.client.messages(), 8);
    ASSERT_TRUE(end->SendRequest(request, kNever, call).ok());
  });
  uint32_t pings = 0;
  for (int second = 0; second < 100; ++second) {
    world.Pass(absl::Seconds(1), absl::Seconds(1));
    if (peer.received().size() > 1 + pings) peer.Send(RawControlAck(++pings));
  }
  EXPECT_GE(pings, 8u);
  EXPECT_EQ(observer.closings, 0);
  EXPECT_FALSE(call.done());
  world.OnClient([&] { end->Close(); });  // The call is of this scope.
}

}  // namespace
}  // namespace hawser::transport
