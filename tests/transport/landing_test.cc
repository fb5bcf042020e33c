// A large response lands in memory of the program's own, which no NIC touches any more when its call has
// ended.

#include <string.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 8 * kMiB;
constexpr uint8_t kUntouched = 0x5a;

class LandingTest : public ::testing::Test {
 protected:
  explicit LandingTest(const RuntimeOptions& client_options = {}, const ConnectionOptions& options = {})
      : world_(client_options),
        memory_(kBytes / 8),
        region_(*world_.client.fabric->Register(data(), kBytes)),
        link_(world_, options) {
    memset(data(), kUntouched, kBytes);
  }

  uint8_t* data() { return reinterpret_cast<uint8_t*>(memory_.data()); }
  std::string Bytes(size_t offset, size_t length) {
    return std::string(reinterpret_cast<const char*>(data()) + offset, length);
  }
  bool IsUntouched() { return Bytes(0, kBytes) == std::string(kBytes, static_cast<char>(kUntouched)); }
  Landing Into(size_t length_bytes = kBytes) { return {data(), length_bytes, region_->lkey(), true}; }

  // Sends `call`, whose response is to land, until the server has its request.
  void Send(PendingCall& call, absl::Duration timeout = absl::InfiniteDuration(), size_t length = kBytes) {
    call.into = Into(length);
    link_.server.requests.clear();
    ASSERT_THAT(link_.Send(call, 8, timeout), IsOk());
    ASSERT_TRUE(world_.RunUntil([&] { return !link_.server.requests.empty(); }));
  }
  void Respond(OutgoingMessagePtr response) {
    ASSERT_THAT(link_.Respond(link_.server.requests[0].id, std::move(response)), IsOk());
  }
  void Respond(size_t body_bytes, uint32_t seed = 1) {
    Respond(NewMessage(world_.server.messages(), body_bytes, seed));
  }
  void RespondParts(const std::vector<size_t>& parts) {
    Respond(NewMessageOfParts(world_.server.messages(), parts));
  }
  void Finish(PendingCall& call) {
    ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
    ASSERT_THAT(call.response, IsOk());
  }
  SpyFabric::Counts& counts() { return link_.client_counts(); }
  // READs that were posted, and whose completion the connection has not seen.
  int64_t outstanding() { return counts().reads_outstanding + counts().reads_held; }
  size_t live_queue_pairs() { return world_.client.fabric->live_queue_pairs(); }

  // A call several of whose READs are posted, and stay so: the response is larger than the memory that they
  // may fill at once. What the memory has, and what is outstanding, is noted at its end.
  void BeginToRead(PendingCall& call, absl::Duration timeout = absl::InfiniteDuration()) {
    ASSERT_NO_FATAL_FAILURE(Send(call, timeout));
    call.on_response = [&] {
      outstanding_at_end_ = outstanding();
      live_at_end_ = live_queue_pairs();
      at_end_ = Bytes(0, kBytes);
    };
    // The first completions make the window grow.
    counts().hold_reads = true;
    counts().reads_let_through = 6;
    Respond(kBytes - 8);
    world_.Settle();
    ASSERT_FALSE(call.done());
    ASSERT_GE(outstanding(), 2);
  }
  void LetGo() {
    counts().hold_reads = false;
    world_.Settle();
  }

  World world_;
  std::vector<uint64_t> memory_;
  const std::unique_ptr<fabric::MemoryRegion> region_;
  Link link_;
  int64_t outstanding_at_end_ = -1;
  size_t live_at_end_ = 0;
  std::string at_end_;
};

TEST_F(LandingTest, ALargeResponseIsReadIntoIt) {
  for (const size_t body_bytes : {size_t{8192}, kMiB, kBytes - 8}) {
    PendingCall call;
    ASSERT_NO_FATAL_FAILURE(Send(call));
    ASSERT_NO_FATAL_FAILURE(Respond(body_bytes));
    ASSERT_NO_FATAL_FAILURE(Finish(call));
    IncomingMessage& response = **call.response;
    // Its root is a pointer of one word, which comes inline.
    EXPECT_EQ(response.segment(1).data(), data());
    EXPECT_EQ(response.segment(1).size(), body_bytes - 8);
    EXPECT_EQ(response.landed().data(), data());
    EXPECT_EQ(response.landed().size(), body_bytes - 8);
    EXPECT_TRUE(Content(response) == ContentOf(body_bytes)) << body_bytes;
    EXPECT_EQ(Bytes(body_bytes - 8, 8), std::string(8, static_cast<char>(kUntouched)));
    EXPECT_LT(World::LeasedBytes(world_.client), size_t{256} << 10) << "it takes memory of the pool";
    memset(data(), kUntouched, kBytes);
  }
  EXPECT_GE(counts().read_bytes, kMiB);
  world_.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link_.server_counts().grants, 0) << "the server was not told to let the response go";
}

TEST_F(LandingTest, TheNextCallMayUseTheSameMemory) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    PendingCall call;
    ASSERT_NO_FATAL_FAILURE(Send(call));
    ASSERT_NO_FATAL_FAILURE(Respond(kMiB, seed));
    ASSERT_NO_FATAL_FAILURE(Finish(call));
    EXPECT_TRUE(Content(**call.response) == ContentOf(kMiB, seed)) << seed;
  }
}

TEST_F(LandingTest, OfSeveralSegmentsTheLongestThatFitsLands) {
  const std::vector<size_t> parts = {20 << 10, 600 << 10, 400 << 10, 30 << 10, 100};
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(Send(call, absl::InfiniteDuration(), 500 << 10));
  ASSERT_NO_FATAL_FAILURE(RespondParts(parts));
  ASSERT_NO_FATAL_FAILURE(Finish(call));
  IncomingMessage& response = **call.response;
  const std::vector<std::string> received = Parts(response);
  ASSERT_EQ(received.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_TRUE(received[i] == PartOf(i, parts[i])) << i;
  ASSERT_GE(response.landed().size(), parts[2]);
  EXPECT_LT(response.landed().size(), parts[1]);
  EXPECT_THAT(Bytes(0, 500 << 10), HasSubstr(PartOf(2, parts[2])));
  EXPECT_EQ(Bytes(500 << 10, 8), std::string(8, static_cast<char>(kUntouched)));
  const absl::Span<const uint8_t> sink = response.sink_bytes();
  EXPECT_GE(sink.size(), parts[0] + parts[1]);
  EXPECT_LT(sink.size(), parts[1] + parts[2]);
}

TEST_F(LandingTest, WhatDoesNotFitIsReceivedAsAlways) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(Send(call, absl::InfiniteDuration(), kMiB - 16));
  ASSERT_NO_FATAL_FAILURE(Respond(kMiB));
  ASSERT_NO_FATAL_FAILURE(Finish(call));
  EXPECT_TRUE((*call.response)->landed().empty());
  EXPECT_TRUE(Content(**call.response) == ContentOf(kMiB));
  EXPECT_TRUE(IsUntouched());
}

TEST_F(LandingTest, WhatComesInTheMessageDoesNotLand) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(Send(call));
  ASSERT_NO_FATAL_FAILURE(Respond(2048));
  ASSERT_NO_FATAL_FAILURE(Finish(call));
  EXPECT_TRUE((*call.response)->landed().empty());
  EXPECT_EQ(Content(**call.response), ContentOf(2048));
  EXPECT_TRUE(IsUntouched());
}

TEST_F(LandingTest, AnErrorDoesNotLand) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(Send(call));
  OutgoingMessagePtr error = NewMessage(world_.server.messages(), kMiB);
  const uint8_t envelope[8] = {1};
  error->SetEnvelope(envelope);
  ASSERT_NO_FATAL_FAILURE(Respond(std::move(error)));
  ASSERT_NO_FATAL_FAILURE(Finish(call));
  EXPECT_TRUE((*call.response)->landed().empty());
  EXPECT_TRUE(IsUntouched());
}

TEST_F(LandingTest, WhatTheProcessorDoesNotSeeIsNoSegmentOfTheMessage) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(Send(call));
  call.into.cpu_visible = false;
  ASSERT_NO_FATAL_FAILURE(RespondParts({64 << 10, 256 << 10}));
  ASSERT_NO_FATAL_FAILURE(Finish(call));
  IncomingMessage& response = **call.response;
  EXPECT_EQ(response.landed().data(), data());
  EXPECT_THAT(Bytes(0, response.landed().size()), HasSubstr(PartOf(1, 256 << 10)));
  size_t empty = 0;
  for (size_t i = 0; i < 3; ++i) empty += response.segment(i).empty();
  EXPECT_EQ(empty, 1u);
  EXPECT_THROW(Parts(response), kj::Exception);
}

TEST_F(LandingTest, APushLandsToo) {
  world_.client.fabric->LetPush();
  world_.server.fabric->LetPush();
  Link link(world_);
  PendingCall call;
  call.into = Into();
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 16 << 10), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
  ASSERT_THAT(call.response, IsOk());
  EXPECT_EQ((*call.response)->landed().data(), data());
  EXPECT_EQ(Content(**call.response), ContentOf(16 << 10));
  if (TestScheme() == "tcp") {
    EXPECT_EQ(link.client_counts().taken_pushes, 1u);
    EXPECT_EQ(link.client_counts().reads, 0u);
  }
}

// ---- Its end.

TEST_F(LandingTest, AtItsDeadlineACallWaitsForTheReadsThatWerePosted) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call, absl::Milliseconds(50)));
  world_.Pass(absl::Milliseconds(60));
  EXPECT_FALSE(call.done()) << "the memory is still the fabric's";
  const uint64_t posted = counts().reads;
  LetGo();
  ASSERT_TRUE(call.done());
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Text(call.status()), HasSubstr("READ"));
  EXPECT_EQ(outstanding_at_end_, 0);
  EXPECT_EQ(counts().reads, posted) << "it went on reading";
  EXPECT_TRUE(Bytes(0, kBytes) == at_end_) << "the memory was written to after the end of the call";
  world_.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link_.server_counts().grants, 0) << "the server was not told to let the response go";
  PendingCall next;
  ASSERT_NO_FATAL_FAILURE(Send(next));
  ASSERT_NO_FATAL_FAILURE(Respond(kMiB, 7));
  ASSERT_NO_FATAL_FAILURE(Finish(next));
  EXPECT_TRUE(Content(**next.response) == ContentOf(kMiB, 7));
}

TEST_F(LandingTest, ACancelledCallWaitsForTheReadsThatWerePosted) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call, absl::Milliseconds(50)));
  for (int i = 0; i < 2; ++i) world_.OnClient([&] { link_.client_end->Cancel(call.id); });
  world_.Pass(absl::Milliseconds(60));
  EXPECT_FALSE(call.done()) << "the memory is still the fabric's";
  LetGo();
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kCancelled)) << "the first reason counts";
  EXPECT_EQ(outstanding_at_end_, 0);
  EXPECT_TRUE(Bytes(0, kBytes) == at_end_);
}

TEST_F(LandingTest, ACallWhoseResponseIsNotThereEndsAtOnceAndNothingIsRead) {
  for (bool cancelled : {false, true}) {
    PendingCall call;
    ASSERT_NO_FATAL_FAILURE(Send(call, absl::Milliseconds(5)));
    if (cancelled) {
      world_.OnClient([&] { link_.client_end->Cancel(call.id); });
    } else {
      world_.Pass(absl::Milliseconds(6));
    }
    EXPECT_TRUE(call.done());
    ASSERT_NO_FATAL_FAILURE(Respond(kMiB));
    ASSERT_TRUE(world_.RunUntil([&] { return link_.client_end->CanSend(); }));
    world_.Settle();
    EXPECT_EQ(call.ends, 1);
    EXPECT_EQ(counts().reads, 0u);
  }
  EXPECT_TRUE(IsUntouched());
}

TEST_F(LandingTest, WhenTheConnectionIsLostItEndsWithTheQueuePair) {
  PendingCall call, other;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call));
  ASSERT_THAT(link_.Send(other, 8), IsOk());
  world_.client.fabric->KeepBackFlushes(true);
  world_.OnClient([&] { link_.client_end->Close(absl::UnavailableError("gone")); });
  world_.Settle();
  EXPECT_THAT(other.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(link_.client_observer.losses, 1);
  EXPECT_FALSE(call.done()) << "the fabric has not given the memory back";
  world_.OnClient([&] { link_.client_end->Cancel(call.id); });  // Has no effect any more.
  world_.client.fabric->KeepBackFlushes(false);
  ASSERT_TRUE(world_.RunUntil([&] { return link_.client_observer.closings != 0; }));
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Text(call.status()), HasSubstr("gone"));
  EXPECT_EQ(live_at_end_, 0u);
  EXPECT_TRUE(Bytes(0, kBytes) == at_end_);
}

TEST_F(LandingTest, WhenThePeerIsGoneItEndsWithTheQueuePair) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call));
  world_.OnServer([&] { link_.server_end->Close(); });
  ASSERT_TRUE(world_.RunUntil([&] { return link_.closed(); }));
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(live_at_end_, 0u);
  EXPECT_TRUE(Bytes(0, kBytes) == at_end_);
}

TEST_F(LandingTest, ACallThatWasGivenUpKeepsItsReasonWhenTheConnectionIsLostToo) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call, absl::Milliseconds(50)));
  call.wants_request_back = true;
  world_.Pass(absl::Milliseconds(60));
  ASSERT_FALSE(call.done());
  world_.OnClient([&] { link_.client_end->Close(absl::UnavailableError("gone")); });
  ASSERT_TRUE(world_.RunUntil([&] { return link_.client_observer.closings != 0; }));
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(call.request_back, nullptr) << "it is not sent again";
}

TEST_F(LandingTest, ItsRequestComesBackAfterItsEnd) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call));
  call.wants_request_back = true;
  world_.OnClient([&] { link_.client_end->Close(absl::UnavailableError("gone")); });
  ASSERT_TRUE(world_.RunUntil([&] { return link_.client_observer.closings != 0; }));
  EXPECT_EQ(call.ends, 1);
  EXPECT_NE(call.request_back, nullptr);
}

TEST_F(LandingTest, AFlushThatNeverComesEndsItWithTheQueuePair) {
  if (TestScheme() != "tcp")
    GTEST_SKIP() << "there a flush by force has half a minute more, and is kept back, too";
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call));
  world_.client.fabric->KeepBackFlushes(true);
  world_.OnClient([&] { link_.client_end->Close(absl::UnavailableError("gone")); });
  world_.Pass(absl::Milliseconds(4800), absl::Milliseconds(100));
  EXPECT_FALSE(call.done());
  world_.Pass(absl::Milliseconds(400), absl::Milliseconds(100));  // 5 s: as in ending.cc.
  EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(live_at_end_, 0u);
}

// As a device does that does not deregister what a READ had to be given to write to, over iWARP.
TEST_F(LandingTest, MemoryThatTheDeviceDoesNotTakeBackIsTheProgramsWithTheEndOfTheQueuePair) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call));
  EXPECT_EQ(counts().open_sinks, 1);
  counts().keeps_sinks = true;
  LetGo();
  EXPECT_FALSE(call.done());
  EXPECT_EQ(outstanding(), 0);
  world_.OnClient([&] { link_.client_end->queue_pair().Disconnect(); });
  ASSERT_TRUE(world_.RunUntil([&] { return link_.client_observer.closings != 0; }));
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(live_at_end_, 0u);
}

// A peer may let one READ complete now and then: the keepalive does not end its connection.
class SlowPeerLandingTest : public LandingTest {
 protected:
  static constexpr absl::Duration kInterval = absl::Seconds(2), kTimeout = absl::Seconds(1);
  SlowPeerLandingTest() : LandingTest({}, {.keepalive_interval = kInterval, .keepalive_timeout = kTimeout}) {}
};

TEST_F(SlowPeerLandingTest, AfterTheTimeThatBoundsReadsTheConnectionIsEnded) {
  PendingCall call, other;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call, absl::Milliseconds(50)));
  ASSERT_THAT(link_.Send(other, 8), IsOk());
  const int64_t posted = outstanding();
  world_.Pass(absl::Milliseconds(60));
  world_.Pass(kInterval + kTimeout - absl::Milliseconds(1200), absl::Milliseconds(100));
  ++counts().reads_let_through;
  world_.Settle();
  ASSERT_EQ(outstanding(), posted - 1) << "the test shows nothing";
  world_.Pass(absl::Seconds(1), absl::Milliseconds(100));
  EXPECT_FALSE(call.done());
  EXPECT_EQ(link_.client_observer.losses, 0);
  world_.Pass(absl::Milliseconds(400), absl::Milliseconds(100));
  ASSERT_TRUE(world_.RunUntil([&] { return link_.client_observer.closings != 0; }));
  EXPECT_THAT(Text(*link_.client_observer.lost), HasSubstr("READs into the memory of"));
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(live_at_end_, 0u);
  EXPECT_THAT(other.status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(SlowPeerLandingTest, AProcessThatWasStoppedForThatTimeLooksFirst) {
  PendingCall call;
  ASSERT_NO_FATAL_FAILURE(BeginToRead(call, absl::Milliseconds(50)));
  world_.Pass(absl::Milliseconds(60));
  world_.Pass(2 * (kInterval + kTimeout), 2 * (kInterval + kTimeout));
  EXPECT_FALSE(call.done());
  EXPECT_EQ(link_.client_observer.losses, 0);
  LetGo();
  ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(link_.client_observer.losses, 0);
}

// ---- Memory of the pool.

class SmallPoolLandingTest : public LandingTest {
 protected:
  SmallPoolLandingTest() : LandingTest({.pool = {.limit_bytes = 4 * kMiB}}) {}
};

TEST_F(SmallPoolLandingTest, WhatLandsNeedsNone) {
  PendingCall lands, other;
  ASSERT_NO_FATAL_FAILURE(Send(lands));
  ASSERT_NO_FATAL_FAILURE(Respond(kBytes - 8));
  ASSERT_NO_FATAL_FAILURE(Finish(lands));
  EXPECT_TRUE(Content(**lands.response) == ContentOf(kBytes - 8));
  ASSERT_NO_FATAL_FAILURE(Send(other, absl::InfiniteDuration(), kMiB));
  ASSERT_NO_FATAL_FAILURE(Respond(kBytes - 8));
  ASSERT_TRUE(world_.RunUntil([&] { return other.done(); }));
  EXPECT_THAT(other.status(), HasCode(absl::StatusCode::kResourceExhausted)) << "the test shows nothing";
}

TEST_F(SmallPoolLandingTest, ItDoesNotWaitForThoseThatNeedSome) {
  PendingCall keeps, waits, lands;
  ASSERT_THAT(link_.Send(keeps, 8), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return !link_.server.requests.empty(); }));
  ASSERT_NO_FATAL_FAILURE(Respond(2 * kMiB));
  ASSERT_NO_FATAL_FAILURE(Finish(keeps));
  link_.server.requests.clear();
  ASSERT_THAT(link_.Send(waits, 8), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return !link_.server.requests.empty(); }));
  ASSERT_NO_FATAL_FAILURE(Respond(2 * kMiB));
  world_.Settle();
  ASSERT_FALSE(waits.done());
  ASSERT_NO_FATAL_FAILURE(Send(lands));
  ASSERT_NO_FATAL_FAILURE(Respond(3 * kMiB));
  ASSERT_NO_FATAL_FAILURE(Finish(lands));
  EXPECT_FALSE(waits.done());
  keeps.response->reset();
  ASSERT_NO_FATAL_FAILURE(Finish(waits));
}

TEST_F(SmallPoolLandingTest, AtItsDeadlineACallThatWaitsForMemoryEndsAtOnce) {
  PendingCall keeps, call;
  ASSERT_THAT(link_.Send(keeps, 8), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return !link_.server.requests.empty(); }));
  ASSERT_NO_FATAL_FAILURE(Respond(2 * kMiB));
  ASSERT_NO_FATAL_FAILURE(Finish(keeps));
  // One part fits, and what needs memory of the pool is as large as what is kept.
  ASSERT_NO_FATAL_FAILURE(Send(call, absl::Milliseconds(50), kMiB + 64));
  ASSERT_NO_FATAL_FAILURE(RespondParts({3 * kMiB, kMiB}));
  world_.Settle();
  ASSERT_EQ(call.ends, 0);
  world_.Pass(absl::Milliseconds(60));
  EXPECT_EQ(call.ends, 1);
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kResourceExhausted));
  keeps.response->reset();
  world_.Settle();
  EXPECT_TRUE(IsUntouched());
}

}  // namespace
}  // namespace hawser::transport
