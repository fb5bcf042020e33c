// What peers hold of this side's memory, when others need memory: by responses that they do not READ or
// release, and by requests of a server that they do not answer.
#include "hawser/transport/sharing/response_watch.h"

#include <capnp/any.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/memory_world.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A client of small requests. The test answers them with large responses.
class Asker {
 public:
  explicit Asker(World& world, const std::string& address = "") : link(world, From(address), From()) {}

  // Sends `count` requests and answers each with `bytes`. The status of the last response.
  absl::Status Get(int count, size_t bytes) {
    absl::Status last;
    for (; count > 0; --count) {
      const size_t before = link.server.requests.size();
      calls_.push_back(std::make_unique<PendingCall>());
      EXPECT_THAT(link.Send(*calls_.back(), 8), IsOk());
      EXPECT_TRUE(link.world.RunUntil([&] { return link.server.requests.size() > before; }));
      last = link.Respond(link.server.requests.back().id, bytes);
      if (!last.ok()) link.RespondEmpty(link.server.requests.back().id);
    }
    link.world.Settle();
    return last;
  }
  // Sends a request, which waits for its answer.
  bool Ask() {
    calls_.push_back(std::make_unique<PendingCall>());
    return link.Send(*calls_.back(), 8).ok() &&
           link.world.RunUntil([&] { return !link.server.requests.empty(); });
  }
  // As Get(), with values that `keep` keeps, too.
  void GetKept(int count, size_t bytes, std::vector<std::shared_ptr<const void>>& keep) {
    for (; count > 0; --count) {
      const size_t before = link.server.requests.size();
      calls_.push_back(std::make_unique<PendingCall>());
      ASSERT_THAT(link.Send(*calls_.back(), 8), IsOk());
      ASSERT_TRUE(link.world.RunUntil([&] { return link.server.requests.size() > before; }));
      const auto value = std::make_shared<const Lease>(*link.world.server.buffers().Acquire(bytes));
      OutgoingMessagePtr response = link.world.server.messages().NewOutgoing();
      response->builder().getRoot<capnp::AnyPointer>().adopt(response->Attach({value->data(), bytes}, value));
      ASSERT_THAT(link.Respond(link.server.requests.back().id, std::move(response)), IsOk());
      keep.push_back(value);
    }
    link.world.Settle();
  }
  // Sends a request of `bytes`, which the server READs once it has memory.
  void Put(size_t bytes) {
    calls_.push_back(std::make_unique<PendingCall>());
    ASSERT_THAT(link.Send(*calls_.back(), bytes), IsOk());
    link.world.Settle();
  }
  // From now on this client completes no READ but those that it is let through.
  void ReadNothing() { link.client_counts().hold_reads = true; }
  void LetThrough(uint64_t reads) { link.client_counts().reads_let_through = reads; }
  bool is_closed() const { return link.server_observer.closings != 0; }

  Link link;

 private:
  std::vector<std::unique_ptr<PendingCall>> calls_;
};

// The parameter is the number of pollers: all connections share one, or they are dealt out to four.
class ResponseWatchTest : public ::testing::TestWithParam<int> {
 protected:
  ResponseWatchTest() : world_({}, PoolOf(32 * kMiB, GetParam())), other_(world_, Other()) {}

  // An address of another host, where the fabric has one.
  static std::string Other() { return TestScheme() == "tcp" ? "127.0.0.2" : ""; }
  // Three clients of one host hold 24 MiB.
  void Hoard() {
    for (int i = 0; i < 3; ++i) {
      hoarders_.push_back(std::make_unique<Asker>(world_));
      hoarders_.back()->ReadNothing();
      ASSERT_THAT(hoarders_.back()->Get(4, 2 * kMiB - 4096), IsOk());
    }
  }
  int closed() const {
    int count = 0;
    for (auto& hoarder : hoarders_) count += hoarder->is_closed() ? 1 : 0;
    return count;
  }
  bool RefusesMemory(size_t bytes = 16 * kMiB) { return !world_.server.buffers().Acquire(bytes).ok(); }
  // The time until `condition` holds, at most `longest`.
  template <typename Condition>
  absl::Duration TimeUntil(const Condition& condition, absl::Duration longest) {
    absl::Duration time;
    for (world_.Settle(); !condition() && time < longest; time += absl::Milliseconds(20)) {
      world_.Pass(absl::Milliseconds(20), absl::Milliseconds(20));
    }
    EXPECT_TRUE(condition());
    return time;
  }

  World world_;
  Asker other_;
  std::vector<std::unique_ptr<Asker>> hoarders_;
};

TEST_P(ResponseWatchTest, AHoarderLosesTheMemoryThatAPullWaitsFor) {
  Hoard();
  other_.Put(11 * kMiB);
  EXPECT_EQ(other_.link.server.requests.size(), 0u);
  TimeUntil([&] { return !other_.link.server.requests.empty(); }, absl::Milliseconds(2200));
  ASSERT_GE(closed(), 1);
  for (auto& hoarder : hoarders_) {
    if (!hoarder->is_closed()) continue;
    EXPECT_THAT(*hoarder->link.server_observer.closed, HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(Text(*hoarder->link.server_observer.closed), HasSubstr("while others need memory"));
  }
  EXPECT_FALSE(other_.is_closed());
}

TEST_P(ResponseWatchTest, AHoarderLosesTheMemoryThatWasRefused) {
  Hoard();
  world_.Pass(absl::Seconds(1), absl::Milliseconds(20));
  ASSERT_EQ(closed(), 0);
  ASSERT_TRUE(RefusesMemory());
  TimeUntil([&] { return closed() == 1; }, absl::Milliseconds(1100));
  world_.Pass(absl::Seconds(10), absl::Milliseconds(100));
  EXPECT_LE(closed(), GetParam() == 1 ? 1 : 3) << "once for each poller";
}

// What was claimed of the first one is not claimed any more once that one is gone.
TEST_P(ResponseWatchTest, EachShortageEndsAnotherHoarder) {
  Hoard();
  for (int ended = 1; ended <= 3; ++ended) {
    SCOPED_TRACE(ended);
    // It is refused again and again: over RDMA READs are not seen, and a hoarder has more time at first.
    const auto another_is_ended = [&] { return !RefusesMemory(30 * kMiB) || closed() >= ended; };
    TimeUntil(another_is_ended, absl::Seconds(10));
    EXPECT_GE(closed(), ended);
  }
}

TEST_P(ResponseWatchTest, AHoarderThatHasReleasedSomeIsStillAHoarder) {
  ASSERT_THAT(other_.Get(1, 6 * kMiB), IsOk());
  world_.Pass(absl::Milliseconds(20));
  other_.ReadNothing();
  ASSERT_THAT(other_.Get(2, 6 * kMiB), IsOk());
  // 16 READs of the first response, which are outstanding at once, and then eight of it and seven of the
  // second in turn.
  other_.LetThrough(31);
  world_.Pass(absl::Milliseconds(20));
  ASSERT_LT(World::LeasedBytes(world_.server), 8 * kMiB) << "one is released";
  ASSERT_GE(World::LeasedBytes(world_.server), 6 * kMiB);
  for (int ms = 0; ms < 4000 && !other_.is_closed(); ms += 100) {
    EXPECT_TRUE(RefusesMemory(30 * kMiB));
    world_.Pass(absl::Milliseconds(100), absl::Milliseconds(50));
  }
  EXPECT_TRUE(other_.is_closed());
}

TEST_P(ResponseWatchTest, WithoutShortageNoneIsEnded) {
  Hoard();
  world_.Pass(absl::Minutes(2), absl::Milliseconds(200));
  EXPECT_EQ(closed(), 0);
  for (auto& hoarder : hoarders_) hoarder->link.client_counts().hold_reads = false;
  EXPECT_TRUE(world_.RunUntil([&] { return World::LeasedBytes(world_.client) >= 24 * kMiB; }))
      << "still served";
}

TEST_P(ResponseWatchTest, ASlowReaderThatProgressesSurvivesAShortage) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "READs of one response are not seen: kUnseenBytesPerSecond";
  ASSERT_THAT((other_.ReadNothing(), other_.Get(1, 10 * kMiB)), IsOk());
  hoarders_.push_back(std::make_unique<Asker>(world_));
  hoarders_[0]->ReadNothing();
  ASSERT_THAT(hoarders_[0]->Get(4, 2 * kMiB - 4096), IsOk());
  for (int ms = 0; ms < 2400; ms += 100) {  // Some 2.5 MiB/s.
    EXPECT_TRUE(RefusesMemory() || closed() == 1);
    other_.LetThrough(1);
    world_.Pass(absl::Milliseconds(100), absl::Milliseconds(50));
  }
  EXPECT_EQ(closed(), 1) << "the hoarder";
  EXPECT_FALSE(other_.is_closed());
}

TEST_P(ResponseWatchTest, TheTimeInWhichAHandlerHoldsThePollerIsNoTimeOfThePeer) {
  ASSERT_TRUE(other_.Ask());
  Poller& poller = *other_.link.server_poller;
  poller.Run([&] {
    OutgoingMessagePtr response = NewMessage(world_.server.messages(), 6 * kMiB);
    ASSERT_THAT(other_.link.server_end->Respond(other_.link.server.requests.back().id, response), IsOk());
    world_.clock.Advance(absl::Milliseconds(1100));  // In another handler.
  });
  ASSERT_TRUE(RefusesMemory(28 * kMiB));
  poller.PollOnce();
  world_.Settle();
  EXPECT_FALSE(other_.is_closed());
  EXPECT_GE(World::LeasedBytes(world_.client), 6 * kMiB);
}

TEST_P(ResponseWatchTest, APeerWhoseReadsAreNotSeenHasMoreTimeForMore) {
  other_.link.server_counts().hides_reads = true;
  other_.ReadNothing();
  ASSERT_THAT(other_.Get(1, 20 * kMiB), IsOk());
  const auto is_short = [&](absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Milliseconds(100)) {
      RefusesMemory();
      world_.Pass(absl::Milliseconds(100), absl::Milliseconds(50));
    }
  };
  is_short(absl::Milliseconds(2200));
  EXPECT_FALSE(other_.is_closed()) << "1 s, and 1.25 s for 20 MiB";
  is_short(absl::Milliseconds(2000));
  EXPECT_TRUE(other_.is_closed());
}

TEST_P(ResponseWatchTest, AHostIsRefusedWhatIsBeyondItsShare) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "another host is an address of the loopback";
  Hoard();
  hoarders_.push_back(std::make_unique<Asker>(world_));
  hoarders_.back()->ReadNothing();
  const absl::Status status = hoarders_.back()->Get(1, 3 * kMiB);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Text(status), HasSubstr("PollerOptions::host_memory_share"));
  other_.ReadNothing();
  EXPECT_THAT(other_.Get(1, 3 * kMiB), IsOk()) << "of another host";
}

TEST_P(ResponseWatchTest, AValueCountsFromWhenTheProgramLetsGoOfIt) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "another host is an address of the loopback";
  std::vector<std::shared_ptr<const void>> kept;
  hoarders_.push_back(std::make_unique<Asker>(world_));
  Asker& hoarder = *hoarders_[0];
  hoarder.ReadNothing();
  hoarder.GetKept(4, 6 * kMiB - 4096, kept);
  ASSERT_THAT(hoarder.Get(1, 2 * kMiB), IsOk()) << "the program holds 24 MiB, not the peer";
  kept.clear();
  world_.Pass(absl::Milliseconds(1100), absl::Milliseconds(20));
  EXPECT_THAT(hoarder.Get(1, 2 * kMiB), HasCode(absl::StatusCode::kResourceExhausted));
  other_.ReadNothing();
  EXPECT_THAT(other_.Get(1, 2 * kMiB), IsOk()) << "of another host";
}

TEST_P(ResponseWatchTest, WhatWasReadAndReleasedCountsNoMore) {
  // Several times the memory of the pool. Less over RDMA, because that is mostly an emulated machine.
  const int rounds = TestScheme() == "tcp" ? 20 : 8;
  for (int i = 0; i < rounds; ++i) {
    ASSERT_THAT(other_.Get(1, 10 * kMiB), IsOk()) << i;
    // On a busy machine the last READ may be answered late, and the release waits a millisecond from then on.
    for (int ms = 0; ms < 5 || (ms < 500 && World::LeasedBytes(world_.server) > kMiB); ++ms) {
      world_.Pass(absl::Milliseconds(1));
    }
    ASSERT_LE(World::LeasedBytes(world_.server), kMiB) << i;
  }
}

// The fabric lets it READ each byte four times.
TEST(ResponseWatchHostileTest, BytesThatAreReadAgainAreNoProgress) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "READs are not seen";
  World world({}, PoolOf(32 * kMiB));
  RecordingObserver observer;
  RecordingServer server;
  Connection* victim = nullptr;
  TestListener listener(world, world.server);
  listener.on_peer = [&](PeerRequest request) {
    victim = *Connection::Accept(world.server.poller(), std::move(request), From(),
                                 NewSessionToken(Environment::Real()), observer, &server);
  };
  HostilePeer peer(world);
  peer.Dial(listener.address(), Encode(HostilePeer::Hello()));
  ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value() && peer.established(); }));
  peer.Send(RawRequest(0, 1, 8).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return server.requests.size() == 1; }));
  world.OnServer([&] {
    OutgoingMessagePtr response = NewMessage(world.server.messages(), 6 * kMiB);
    ASSERT_THAT(victim->Respond(server.requests[0].id, response), IsOk());
  });
  ASSERT_TRUE(world.RunUntil([&] { return !peer.received().empty(); }));
  const std::string& received = peer.received()[0];
  ParsedMessage message;
  ASSERT_THAT(Parse(reinterpret_cast<const uint8_t*>(received.data()), received.size(), message), IsOk());
  ASSERT_GT(message.remote_bytes, 5 * kMiB);
  TableEntry part;
  for (uint16_t i = 0; part.length_bytes < 2 * kMiB && i < message.header.entries; ++i) {
    part = DecodeTableEntry(message.table + i * kTableEntryBytes);
  }
  part.length_bytes = 2 * kMiB;
  int seconds = 0;
  for (; seconds < 9 && observer.closings == 0; ++seconds) {
    peer.Read(part);
    world.Settle();
    EXPECT_THAT(world.server.buffers().Acquire(30 * kMiB), Not(IsOk()));
    world.Pass(absl::Seconds(1), absl::Milliseconds(100));
  }
  ASSERT_EQ(observer.closings, 1);
  EXPECT_GE(seconds, 4) << "6 MiB are progress";
  EXPECT_LE(seconds, 6);
  EXPECT_THAT(*observer.closed, HasCode(absl::StatusCode::kResourceExhausted));
  server.requests.clear();
}

// A client that offers services: its reverse connection, over which the server sends requests.
class CalledClient {
 public:
  explicit CalledClient(World& world, const std::string& address = "") : world_(world) {
    TestListener listener(world, world.server);
    listener.on_peer = [&](PeerRequest request) {
      const SessionToken session = request.hello().session;
      server_end_ = *Connection::Accept(world.server.poller(), std::move(request), From(), session,
                                        server_observer, nullptr);
    };
    Handshake hello;
    hello.role = Role::kReverse;
    queue_pair_ = world.client.fabric->queue_pairs();
    world.OnClient([&] {
      client_end_ = *Connection::Dial(world.client.poller(), listener.address(), From(address), hello,
                                      absl::Seconds(2), client_observer_, &handler_);
    });
    EXPECT_TRUE(world.RunUntil(
        [&] { return server_observer.ready.has_value() && client_observer_.ready.has_value(); }));
    // As the services of a client do: a call that has ended is answered.
    handler_.on_cancel = [this](ExchangeId id) { Answer(id); };
  }
  ~CalledClient() {
    if (client_observer_.closings == 0) world_.OnClient([&] { client_end_->Close(); });
    EXPECT_TRUE(
        world_.RunUntil([&] { return client_observer_.closings != 0 && server_observer.closings != 0; }));
  }
  CalledClient(const CalledClient&) = delete;

  // The server sends it `count` requests. The status of the last one: OK if it was sent.
  absl::Status Call(int count, size_t bytes, absl::Duration timeout) {
    absl::Status last;
    for (; count > 0; --count) {
      calls.push_back(std::make_unique<PendingCall>());
      world_.OnServer([&] {
        OutgoingMessagePtr request = NewMessage(world_.server.messages(), bytes);
        last =
            server_end_->SendRequest(request, After(world_.clock.NowNs(), timeout), *calls.back()).status();
      });
      if (!last.ok()) calls.pop_back();
    }
    world_.Settle();
    return last;
  }
  void ReadNothing() { world_.client.fabric->counts(queue_pair_).hold_reads = true; }
  // From now on it does not answer what was given up.
  void AnswerNothing() { handler_.on_cancel = nullptr; }
  bool is_closed() const { return server_observer.closings != 0; }
  size_t received() const { return handler_.requests.size(); }

  RecordingObserver server_observer;
  std::vector<std::unique_ptr<PendingCall>> calls;

 private:
  void Answer(ExchangeId id) {
    OutgoingMessagePtr response = world_.client.messages().NewOutgoing();
    EXPECT_THAT(client_end_->Respond(id, response), IsOk());
  }

  World& world_;
  size_t queue_pair_ = 0;
  RecordingObserver client_observer_;
  RecordingServer handler_;
  Connection *client_end_ = nullptr, *server_end_ = nullptr;
};

class CalledClientsTest : public ::testing::Test {
 protected:
  // Three clients of one host are sent 24 MiB.
  void Call(absl::Duration timeout, bool reads) {
    for (int i = 0; i < 3; ++i) {
      clients_.push_back(std::make_unique<CalledClient>(world_));
      clients_.back()->AnswerNothing();
      if (!reads) clients_.back()->ReadNothing();
      ASSERT_THAT(clients_.back()->Call(4, 2 * kMiB - 4096, timeout), IsOk());
    }
  }
  int closed() const {
    int count = 0;
    for (auto& client : clients_) count += client->is_closed() ? 1 : 0;
    return count;
  }
  bool RefusesMemory() { return !world_.server.buffers().Acquire(16 * kMiB).ok(); }
  void BeShortFor(absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Milliseconds(100)) {
      RefusesMemory();
      world_.Pass(absl::Milliseconds(100), absl::Milliseconds(50));
    }
  }

  World world_{{}, PoolOf(32 * kMiB)};
  std::vector<std::unique_ptr<CalledClient>> clients_;
};

TEST_F(CalledClientsTest, RequestsThatWereGivenUpAreHoarded) {
  for (const bool reads : {false, true}) {
    SCOPED_TRACE(reads);
    Call(absl::Seconds(1), reads);
    world_.Pass(absl::Milliseconds(1100), absl::Milliseconds(50));
    for (auto& client : clients_) {
      for (auto& call : client->calls)
        EXPECT_THAT(call->status(), HasCode(absl::StatusCode::kDeadlineExceeded));
    }
    world_.Pass(absl::Seconds(3), absl::Milliseconds(50));
    EXPECT_EQ(closed(), 0) << "no other needs the memory";
    EXPECT_GE(World::LeasedBytes(world_.server), 23 * kMiB);
    BeShortFor(absl::Seconds(6));
    EXPECT_GE(closed(), 1);
    EXPECT_FALSE(RefusesMemory());
    for (auto& client : clients_) {
      if (!client->is_closed()) continue;
      EXPECT_THAT(*client->server_observer.closed, HasCode(absl::StatusCode::kResourceExhausted));
      EXPECT_THAT(Text(*client->server_observer.closed), HasSubstr("while others need memory"));
    }
    clients_.clear();
  }
}

// Its handler may run for long.
TEST_F(CalledClientsTest, ARequestUnderWayIsNotHoarded) {
  Call(absl::InfiniteDuration(), /*reads=*/true);
  for (auto& client : clients_) ASSERT_TRUE(world_.RunUntil([&] { return client->received() == 4; }));
  BeShortFor(absl::Seconds(6));
  EXPECT_EQ(closed(), 0);
}

TEST_F(CalledClientsTest, AClientThatAnswersWhatWasGivenUpStays) {
  for (int i = 0; i < 2; ++i) {
    CalledClient& client = *clients_.emplace_back(std::make_unique<CalledClient>(world_));
    ASSERT_THAT(client.Call(6, 2 * kMiB - 4096, absl::Seconds(1)), IsOk());
    ASSERT_TRUE(world_.RunUntil([&] { return client.received() == 6; }));
  }
  EXPECT_GE(World::LeasedBytes(world_.server), 23 * kMiB);
  BeShortFor(absl::Milliseconds(900));
  EXPECT_TRUE(RefusesMemory());
  BeShortFor(absl::Seconds(4));
  EXPECT_EQ(closed(), 0);
  EXPECT_LE(World::LeasedBytes(world_.server), kMiB);
}

TEST_F(CalledClientsTest, AHostIsNotSentWhatIsBeyondItsShare) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "another host is an address of the loopback";
  Call(absl::InfiniteDuration(), /*reads=*/false);
  clients_.push_back(std::make_unique<CalledClient>(world_));
  const absl::Status status = clients_.back()->Call(1, 3 * kMiB, absl::InfiniteDuration());
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Text(status), HasSubstr("PollerOptions::host_memory_share"));
  clients_.push_back(std::make_unique<CalledClient>(world_, "127.0.0.2"));
  EXPECT_THAT(clients_.back()->Call(1, 3 * kMiB, absl::InfiniteDuration()), IsOk()) << "another host";
}

INSTANTIATE_TEST_SUITE_P(Pollers, ResponseWatchTest, ::testing::Values(1, 4),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace hawser::transport
