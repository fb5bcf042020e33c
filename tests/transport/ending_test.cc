// The end of a connection, for any cause and in any state of its exchanges, releases everything.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hoard.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

// A small message fails later, when it is posted at the end of the turn.
TEST(EndTest, ALargeMessageOnAQueuePairThatHasJustFailedIsUnavailableAndSoAreTheCallsInFlight) {
  World world;
  {
    Link link(world);
    PendingCall in_flight, refused;
    ASSERT_THAT(link.Send(in_flight, 100), IsOk());
    ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
    absl::Status sent, answered;
    world.OnClient([&] {
      link.client_end->queue_pair().Disconnect();
      sent = link.Send(refused, kMiB);
    });
    EXPECT_THAT(sent, HasCode(absl::StatusCode::kUnavailable));
    world.OnServer([&] {
      link.server_end->queue_pair().Disconnect();
      answered = link.Respond(link.server.requests[0].id, kMiB);
    });
    EXPECT_THAT(answered, IsOk());  // A late answer is allowed.
    ASSERT_TRUE(world.RunUntil([&] { return link.closed() && in_flight.done(); }));
    EXPECT_THAT(in_flight.response.status(), HasCode(absl::StatusCode::kUnavailable));
    EXPECT_EQ(link.client_counts().grants, 0);
    link.client_end = link.server_end = nullptr;
  }
  world.Settle();
  EXPECT_EQ(world.LeasedBytes(), 0u);
}

// ---- Ending with calls in flight, in each state of an exchange, on either side.

enum class Ending { kClientCloses, kServerCloses, kClientDies, kServerDies };
enum class Moment {
  kIdle,
  kRequestQueued,
  kRequestRead,  // The server READs a large request.
  kRunning,
  kResponseRead,  // The client READs a large response.
  kResponseKept,  // The client has READ a large response and not released it yet.
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
  const Ending ending = std::get<0>(GetParam());
  const Moment moment = std::get<1>(GetParam());
  RuntimeOptions pool;
  pool.pool.limit_bytes = 48 * kMiB;
  World world(pool, pool);
  Hoard hoard;
  PendingCall call;
  call.wants_request_back = true;
  bool answered = false;
  {
    Link link(world, {.slots = 2});
    const bool large_request = moment == Moment::kRequestRead || moment == Moment::kServerWantsMemory;
    OutgoingMessagePtr request = NewMessage(world.client.messages(), large_request ? 16 * kMiB : 100);
    if (moment == Moment::kServerWantsMemory) hoard.Take(world.server.buffers(), kMiB);
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
          ASSERT_THAT(link.Send(call, std::move(request)), IsOk());
          end();  // If the client ends the connection, nothing was posted before.
        });
        break;
      case Moment::kRequestRead:
        ASSERT_THAT(link.Send(call, std::move(request)), IsOk());
        ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads > 3; }));
        break;
      case Moment::kServerWantsMemory:
        ASSERT_THAT(link.Send(call, std::move(request)), IsOk());
        world.Settle();
        ASSERT_EQ(link.server.request_count, 0u);
        break;
      default:
        ASSERT_THAT(link.Send(call, std::move(request)), IsOk());
        ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
        break;
    }
    switch (moment) {
      case Moment::kResponseRead:
        ASSERT_THAT(link.Respond(link.server.requests[0].id, 16 * kMiB), IsOk());
        ASSERT_TRUE(world.RunUntil([&] { return link.client_counts().reads > 3; }));
        break;
      case Moment::kResponseKept:
        ASSERT_THAT(link.Respond(link.server.requests[0].id, kMiB), IsOk());
        ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
        answered = true;
        break;
      case Moment::kResponseQueued:
        world.OnServer([&] {
          ASSERT_THAT(link.Respond(link.server.requests[0].id, kMiB), IsOk());
          end();
        });
        break;
      case Moment::kClientWantsMemory:
        hoard.Take(world.client.buffers(), kMiB);
        ASSERT_THAT(link.Respond(link.server.requests[0].id, 16 * kMiB), IsOk());
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
      // The handler answers late.
      EXPECT_EQ(world.server.poller().connection_count(), 0u);
    }
    link.client_end = link.server_end = nullptr;
    if (moment != Moment::kIdle) {
      EXPECT_EQ(call.ends, 1);
      if (!call.response.ok()) {
        EXPECT_THAT(call.status(), HasCode(ending == Ending::kClientCloses ? absl::StatusCode::kCancelled
                                                                           : absl::StatusCode::kUnavailable));
      }
      // Until the whole response has arrived, the caller may resend the request.
      if (moment == Moment::kRunning || moment == Moment::kResponseRead ||
          moment == Moment::kClientWantsMemory) {
        EXPECT_NE(call.request_back, nullptr);
      }
      EXPECT_EQ(answered, call.response.ok());
    }
  }
  call.request_back.reset();
  call.response = absl::UnknownError("let go");
  hoard.DropAll();
  EXPECT_EQ(world.LeasedBytes(), 0u);
  EXPECT_EQ(world.client.poller().connection_count(), 0u);
  EXPECT_EQ(world.server.poller().connection_count(), 0u);
  EXPECT_EQ(world.client.poller().read_budget().taken_bytes(), 0u);
  EXPECT_EQ(world.server.poller().read_budget().taken_bytes(), 0u);
  // The pollers keep nothing of it, so the next connection works.
  Link next(world);
  next.EchoAll();
  PendingCall after;
  next.Call(after, NewMessage(world.client.messages(), kMiB));
  EXPECT_THAT(after.response, IsOk());
}

TEST(PeerDeathTest, AllCallsInFlightHearAtOnceWhenThePeerDies) {
  World world;
  Link link(world);
  const std::string peer = link.client_end->peer();
  std::vector<PendingCall> calls(32);
  for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 32; }));
  world.OnServer([&] { link.server_end->Close(); });
  ASSERT_TRUE(world.RunUntil([&] { return calls[0].done(); }));
  for (PendingCall& call : calls) {
    EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
    EXPECT_THAT(Text(call.status()), HasSubstr(peer));
  }
  EXPECT_EQ(link.server.cancelled.size(), 32u);
}

// ---- Draining.

TEST(DrainTest, AnIdleConnectionClosesAtOnce) {
  for (bool client : {true, false}) {
    World world;
    Link link(world);
    link.EchoAll();
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), 8));
    if (client) {
      world.OnClient([&] { link.client_end->Drain(); });
    } else {
      world.OnServer([&] { link.server_end->Drain(); });
    }
    ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
    EXPECT_THAT(client ? *link.client_observer.closed : *link.server_observer.closed,
                HasCode(absl::StatusCode::kCancelled));
  }
}

TEST(DrainTest, TheClientWaitsForTheAnswersAndSendsNothingNew) {
  World world;
  Link link(world);
  PendingCall running, refused;
  ASSERT_THAT(link.Send(running, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnClient([&] { link.client_end->Drain(); });
  EXPECT_FALSE(link.client_end->CanSend());
  EXPECT_THAT(link.Send(refused, 8), HasCode(absl::StatusCode::kUnavailable));
  world.Settle();
  EXPECT_EQ(link.client_observer.closings, 0);
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 3 * kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  ASSERT_THAT(running.response, IsOk());
  EXPECT_EQ(Content(**running.response), ContentOf(3 * kMiB));
}

TEST(DrainTest, TheServerTellsTheClientAndWaitsForItsHandlers) {
  World world;
  Link link(world);
  PendingCall calls[3];
  for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, 8), IsOk());
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
  for (PendingCall& call : calls) EXPECT_THAT(call.response, IsOk());
  EXPECT_EQ(link.client_observer.going_aways, 1);
}

TEST(DrainTest, ARequestOnItsWayWhenTheServerDrainsIsAnswered) {
  World world;
  Link link(world);
  link.EchoAll();
  PendingCall call;
  world.OnServer([&] { link.server_end->Drain(); });
  ASSERT_THAT(link.Send(call, 8), IsOk());  // The client has not been notified yet.
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.response, IsOk());
}

TEST(DrainTest, AServerThatHasJustAcceptedAnswersWhatIsOnItsWay) {
  World world;
  RecordingServer handler;
  RecordingObserver server_observer, client_observer;
  Connection *accepted = nullptr, *dialed = nullptr;
  TestListener listener(world, world.server);
  listener.on_peer = [&](PeerRequest request) {
    auto made =
        Connection::Accept(world.server.poller(), std::move(request), {}, {}, server_observer, &handler);
    ASSERT_THAT(made, IsOk());
    accepted = *made;
    accepted->Drain();  // The server is not notified yet that the connection is established.
  };
  handler.answer = [&](RecordingServer::Request request) {
    OutgoingMessagePtr response = NewMessage(*world.server.poller().shared_messages(), 8);
    EXPECT_THAT(accepted->Respond(request.id, response), IsOk());
  };
  PendingCall call;
  client_observer.on_ready = [&] {
    OutgoingMessagePtr request = NewMessage(*world.client.poller().shared_messages(), 8);
    EXPECT_THAT(dialed->SendRequest(request, kNever, call), IsOk());
  };
  world.OnClient([&] {
    dialed = *Connection::Dial(world.client.poller(), listener.address(), {}, Handshake(), absl::Seconds(2),
                               client_observer, nullptr);
  });
  ASSERT_TRUE(world.RunUntil([&] { return client_observer.closings + server_observer.closings == 2; }));
  EXPECT_THAT(call.response, IsOk()) << "the client closed with " << *client_observer.closed
                                     << ", the server with " << *server_observer.closed;
  EXPECT_EQ(client_observer.going_aways, 1);
}

// On iWARP the client has to send first; the server waits for that, but not for ever.
TEST(DrainTest, AClientThatHasSentNothingIsToldAfterAWhile) {
  World world;
  Link link(world);
  world.OnServer([&] { link.server_end->Drain(); });
  world.Settle();
  EXPECT_EQ(link.client_observer.going_aways, 0);
  EXPECT_FALSE(link.closed());
  world.Pass(absl::Milliseconds(100));
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_EQ(link.client_observer.going_aways, 1);
  EXPECT_THAT(*link.server_observer.closed, HasCode(absl::StatusCode::kCancelled));
}

// There is one control request at a time.
TEST(DrainTest, AServerWhosePingIsInFlightTellsTheClientAfterIt) {
  World world;
  Link link(world, {.keepalive_interval = absl::Seconds(1)});
  link.EchoAll();
  PendingCall call;
  link.Call(call, NewMessage(world.client.messages(), 8));
  world.clock.Advance(absl::Seconds(2));
  const uint64_t sends = link.server_counts().sends;
  while (link.server_counts().sends == sends) world.server.poller().PollOnce();  // The client has no turns.
  world.OnServer([&] { link.server_end->Drain(); });
  ASSERT_TRUE(world.RunUntil([&] { return link.client_observer.going_aways == 1; }));
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_THAT(*link.server_observer.closed, HasCode(absl::StatusCode::kCancelled));
}

TEST(DrainTest, TheServerWaitsUntilItsLargeResponseWasRead) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 16 * kMiB), IsOk());
  world.OnServer([&] { link.server_end->Drain(); });
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  ASSERT_THAT(call.response, IsOk());
  EXPECT_EQ((*call.response)->body_bytes(), 16 * kMiB);
  world.Pass(absl::Milliseconds(2));
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_THAT(*link.server_observer.closed, HasCode(absl::StatusCode::kCancelled));
}

TEST(DrainTest, BothSidesAtOnceCloseToo) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnServer([&] { link.server_end->Drain(); });
  world.OnClient([&] { link.client_end->Drain(); });
  world.Settle();
  ASSERT_THAT(link.Respond(link.server.requests[0].id, kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.response, IsOk());
  world.Pass(absl::Milliseconds(2));
  EXPECT_TRUE(world.RunUntil([&] { return link.closed(); }));
}

TEST(DrainTest, TwiceIsOnce) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  for (int i = 0; i < 3; ++i) {
    world.OnServer([&] { link.server_end->Drain(); });
    world.Settle();
  }
  EXPECT_EQ(link.client_observer.going_aways, 1);
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
}

}  // namespace
}  // namespace hawser::transport
