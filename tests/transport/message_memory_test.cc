// The memory of messages: when it is released, and what happens when it is exhausted.
#include <memory>
#include <string>
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

// A message of so many bytes keeps the buffer that it was received into.
constexpr size_t kNotCopiedBytes = 1000;

// ---- Memory of large messages.

TEST(ReleaseTest, ALargeResponseIsReleasedByTheNextRequestOfItsSlot) {
  World world;
  Link link(world, {.slots = 1});
  link.EchoAll();
  for (int i = 0; i < 3; ++i) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), kMiB));
  }
  EXPECT_EQ(link.server_counts().grants_max, 1) << "of one large segment each";
}

TEST(ReleaseTest, ALargeResponseIsReleasedAfterAMillisecondIfItsSlotStaysIdle) {
  World world;
  Link link(world);
  link.EchoAll();
  PendingCall call;
  link.Call(call, NewMessage(world.client.messages(), kMiB));
  world.Settle();
  EXPECT_GT(link.server_counts().grants, 0);
  EXPECT_EQ(link.server_end->exchanges_in_flight(), 1u);
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0);
  EXPECT_EQ(link.server_end->exchanges_in_flight(), 0u);
}

TEST(ReleaseTest, ALargeRequestIsHeldUntilItsResponse) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, kMiB, absl::Milliseconds(5)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.Pass(absl::Milliseconds(10));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_GT(link.client_counts().grants, 0) << "let go at the deadline";
  link.RespondEmpty(link.server.requests[0].id);
  EXPECT_TRUE(world.RunUntil([&] { return link.client_counts().grants == 0; }));
}

TEST(ReleaseTest, AResponseThatTheApplicationKeepsOutlivesTheConnectionAndTheRuntime) {
  PendingCall small, large;
  {
    World world;
    Link link(world);
    link.EchoAll();
    link.Call(small, NewMessage(world.client.messages(), 1000));
    link.Call(large, NewMessage(world.client.messages(), kMiB));
  }
  EXPECT_EQ(Content(**small.response), ContentOf(1000));
  EXPECT_EQ(Content(**large.response), ContentOf(kMiB));
}

TEST(ReleaseTest, EverythingComesHomeAfterTheCallsAndTheConnection) {
  World world;
  const size_t before = world.LeasedBytes();
  {
    Link link(world);
    link.EchoAll();
    for (size_t size : {size_t{0}, size_t{100}, size_t{4048}, kMiB, 20 * kMiB}) {
      PendingCall call;
      link.Call(call, NewMessage(world.client.messages(), size));
    }
  }
  EXPECT_EQ(world.LeasedBytes(), before);
  EXPECT_EQ(world.client.poller().connection_count(), 0u);
  EXPECT_EQ(world.server.poller().connection_count(), 0u);
}

// The fabric keeps it writable for the device until then.
TEST(ReleaseTest, WhatTakesSeveralReadsIsASinkThatIsOpenUntilTheLastOfThem) {
  World world;
  Link link(world);
  link.server.answer = [&](RecordingServer::Request request) {
    EXPECT_EQ(link.server_counts().open_sinks, 0) << "a handler has it, and the peer could still write there";
    link.Echo(std::move(request));
  };
  for (size_t size : {size_t{100}, size_t{200'000}, kMiB, 20 * kMiB}) {
    const uint64_t before = link.server_counts().sinks_opened;
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), size));
    for (SpyFabric::Counts* counts : {&link.server_counts(), &link.client_counts()}) {
      EXPECT_EQ(counts->sinks_opened - before, size >= kMiB ? 1u : 0u) << size;
      EXPECT_EQ(counts->open_sinks, 0);
    }
  }
}

TEST(ReleaseTest, AMessageWhoseSinkStaysWritableIsNotHandedOver) {
  World world;
  {
    Link link(world);
    link.EchoAll();
    link.server_counts().keeps_sinks = true;
    PendingCall call;
    ASSERT_THAT(link.Send(call, 4 * kMiB), IsOk());
    ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().sinks_opened == 1; }));
    ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().open_sinks == 0; }));
    world.Settle();
    EXPECT_TRUE(link.server.requests.empty());
    EXPECT_FALSE(call.done());
    EXPECT_GE(world.LeasedBytes(world.server), 4 * kMiB);
    world.OnClient([&] { link.client_end->queue_pair().Disconnect(); });
    ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
    link.client_end = link.server_end = nullptr;
  }
  world.Settle();
  EXPECT_EQ(world.LeasedBytes(), 0u);
}

// The fabric does not say by the end of its work requests that the peer has no access any more: only a
// revocation says so.
TEST(ReleaseTest, WhatIsGrantedIsRevokedAlsoWhenTheConnectionFails) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  EXPECT_GT(link.client_counts().grants, 0);
  world.OnServer([&] { link.server_end->queue_pair().Disconnect(); });
  ASSERT_TRUE(world.RunUntil([&] { return link.closed(); }));
  EXPECT_EQ(link.client_counts().grants, 0);
  link.client_end = link.server_end = nullptr;
}

TEST(ReleaseTest, TheSinkOfAMessageThatIsNotWantedIsClosedAfterItsLastRead) {
  World world;
  Link link(world);
  link.server.on_bad_request = [&](ExchangeId id) { link.RespondEmpty(id); };
  link.server_counts().hold_reads = true;
  PendingCall call;
  ASSERT_THAT(link.Send(call, 4 * kMiB, absl::Milliseconds(100)), IsOk());
  world.Settle();
  EXPECT_EQ(link.server_counts().open_sinks, 1);
  world.Pass(absl::Milliseconds(150));
  EXPECT_EQ(link.server_counts().open_sinks, 1);
  const size_t leased = world.LeasedBytes();
  link.server_counts().hold_reads = false;
  EXPECT_TRUE(world.RunUntil([&] { return link.server_counts().open_sinks == 0; }));
  world.Settle();
  EXPECT_LT(world.LeasedBytes(), leased);
}

// ---- Exhausted memory.

RuntimeOptions PoolOf(size_t limit_bytes) {
  RuntimeOptions options;
  options.pool.limit_bytes = limit_bytes;
  return options;
}

TEST(MemoryTest, ALargeRequestWaitsForMemoryAndGoesOn) {
  World world({}, PoolOf(16 * kMiB));
  Link link(world);
  link.EchoAll();
  link.server.answer = nullptr;
  Hoard hoard(world.server.buffers(), kMiB);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 4 * kMiB, absl::Seconds(1)), IsOk());
  world.Pass(absl::Milliseconds(20));
  EXPECT_TRUE(link.server.requests.empty());
  EXPECT_EQ(link.server_counts().reads, 0u);
  hoard.DropAll();
  world.clock.Advance(absl::Milliseconds(2));
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  EXPECT_EQ(Content(*link.server.requests[0].message), ContentOf(4 * kMiB));
}

TEST(MemoryTest, ALargeRequestThatFindsNoneIsRefusedBeforeItsDeadline) {
  World world({}, PoolOf(16 * kMiB));
  Link link(world);
  link.server.on_bad_request = [&](ExchangeId id) { link.RespondEmpty(id); };
  Hoard hoard(world.server.buffers(), kMiB);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 4 * kMiB, absl::Milliseconds(100)), IsOk());
  world.Pass(absl::Milliseconds(80));
  EXPECT_TRUE(link.server.bad_requests.empty()) << "it waits";
  world.Pass(absl::Milliseconds(30));
  ASSERT_EQ(link.server.bad_requests.size(), 1u);
  EXPECT_THAT(link.server.bad_requests[0].second, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Text(link.server.bad_requests[0].second), HasSubstr("BufferPoolOptions::limit_bytes"));
  EXPECT_THAT(call.response, IsOk()) << "the caller has the refusal in time";
}

TEST(MemoryTest, ALargeResponseWaitsForMemoryAndGoesOn) {
  World world(PoolOf(16 * kMiB), {});
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8, absl::Seconds(1)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  Hoard hoard(world.client.buffers(), kMiB);
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 4 * kMiB), IsOk());
  world.Pass(absl::Milliseconds(20));
  EXPECT_FALSE(call.done());
  hoard.DropAll();
  world.clock.Advance(absl::Milliseconds(2));
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  ASSERT_THAT(call.response, IsOk());
  EXPECT_EQ(Content(**call.response), ContentOf(4 * kMiB));
}

TEST(MemoryTest, ALargeResponseThatFindsNoneEndsWithResourceExhaustedAtTheDeadline) {
  World world(PoolOf(16 * kMiB), {});
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8, absl::Milliseconds(10)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  Hoard hoard(world.client.buffers(), kMiB);
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 4 * kMiB), IsOk());
  world.Pass(absl::Milliseconds(12));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Text(call.status()), HasSubstr("BufferPoolOptions::limit_bytes"));
  EXPECT_TRUE(link.client_end->CanSend());
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0);
}

TEST(MemoryTest, ALargeResponseThatIsCancelledWhileItWaitsIsReleased) {
  World world(PoolOf(16 * kMiB), {});
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  Hoard hoard(world.client.buffers(), kMiB);
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 4 * kMiB), IsOk());
  world.Settle();
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_TRUE(link.client_end->CanSend());
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0);
}

TEST(MemoryTest, WhatThePoolCanNeverHoldIsRefusedAtOnce) {
  {
    World world({}, PoolOf(8 * kMiB));
    Link link(world);
    link.server.on_bad_request = [&](ExchangeId id) { link.RespondEmpty(id); };
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), 20 * kMiB));
    ASSERT_EQ(link.server.bad_requests.size(), 1u);
    EXPECT_THAT(link.server.bad_requests[0].second, HasCode(absl::StatusCode::kResourceExhausted));
  }
  World world(PoolOf(8 * kMiB), {});
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_THAT(link.Respond(link.server.requests[0].id, 20 * kMiB), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kResourceExhausted));
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0);
}

TEST(MemoryTest, ARequestThatWasNotBuiltInRegisteredMemoryIsRefused) {
  World world(PoolOf(8 * kMiB), {});
  Link link(world);
  PendingCall call;
  const absl::Status refused = link.Send(call, 20 * kMiB);
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(link.client_counts().sends, 0u);
}

TEST(MemoryTest, TheRingIsFilledAgainWhenThereIsMemory) {
  World world({}, PoolOf(8 * kMiB));
  world.server.fabric->LetSendsWait(false);
  world.client.fabric->OfferNoCredits();
  Link link(world, {.slots = 4});
  Hoard hoard(world.server.buffers(), 4096);
  // The server keeps its requests, so each one takes a buffer out of the ring. Honest callers get no RNR.
  PendingCall calls[4];
  for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, kNotCopiedBytes), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 4; }));
  EXPECT_LT(link.server_counts().receives_posted, link.server_counts().receive_depth);
  hoard.Drop(10);
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().receives_posted, link.server_counts().receive_depth);
}

TEST(MemoryTest, AConnectionThatCannotReceiveForLongEndsWithTheReason) {
  World world({}, PoolOf(8 * kMiB));
  world.client.fabric->OfferNoCredits();
  world.server.fabric->LetSendsWait(false);
  Link link(world, {.slots = 4});
  std::vector<OutgoingMessagePtr> answers;
  for (int i = 0; i < 4; ++i) answers.push_back(NewMessage(world.server.messages(), 8));
  Hoard hoard(world.server.buffers(), 4096);
  world.server.fabric->KeepBackSendCompletions(true);  // So that nothing that was sent is free again.
  PendingCall calls[4];
  for (PendingCall& call : calls) ASSERT_THAT(link.Send(call, kNotCopiedBytes), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 4; }));
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(link.Respond(link.server.requests[i].id, std::move(answers[i])), IsOk());
  }
  world.Pass(absl::Seconds(4), absl::Milliseconds(50));
  EXPECT_EQ(link.server_observer.closings, 0);
  world.Pass(absl::Seconds(2), absl::Milliseconds(50));
  ASSERT_TRUE(link.server_observer.lost.has_value());
  EXPECT_THAT(*link.server_observer.lost, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Text(*link.server_observer.lost), HasSubstr("BufferPoolOptions::limit_bytes"));
  EXPECT_THAT(calls[3].status(), HasCode(absl::StatusCode::kUnavailable));
  if (world.client.poller().fabric().scheme() == "tcp") {  // Other fabrics carry no farewell.
    EXPECT_THAT(Text(calls[3].status()), HasSubstr("no memory for the receives of this connection"));
  }
}

TEST(MemoryTest, AnAnswerThatAReceiveIsMissingForWaitsForMemory) {
  World world({}, PoolOf(8 * kMiB));
  world.client.fabric->OfferNoCredits();
  world.server.fabric->LetSendsWait(false);
  Link link(world, {.slots = 4});
  std::vector<OutgoingMessagePtr> answers;
  for (int i = 0; i < 8; ++i) answers.push_back(NewMessage(world.server.messages(), 8));
  Hoard hoard(world.server.buffers(), 4096);
  world.server.fabric->KeepBackSendCompletions(true);  // So that nothing that was sent is free again.
  PendingCall calls[8];
  for (int i = 0; i < 4; ++i) ASSERT_THAT(link.Send(calls[i], kNotCopiedBytes), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 4; }));
  // The application keeps four buffers, and three are in the ring: for two requests and a control message.
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(link.Respond(link.server.requests[i].id, std::move(answers[i])), IsOk());
  }
  world.Pass(absl::Milliseconds(5));
  EXPECT_EQ(link.server_counts().sends, 2u);
  EXPECT_EQ(link.server_observer.closings, 0);
  link.server.requests.clear();
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().sends, 4u);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(calls[i].done());
}

TEST(MemoryTest, AClientThatKeepsAllRepliesGetsNoRnrAndGoesOnAfterwards) {
  World world(PoolOf(8 * kMiB), {});
  Link link(world, {.slots = 8});
  link.EchoAll();
  std::vector<std::unique_ptr<PendingCall>> calls;
  // Sends until the pool has no memory for the next request, or the ring no receive for its answer.
  while (true) {
    calls.push_back(std::make_unique<PendingCall>());
    OutgoingMessagePtr request = NewMessage(world.client.messages(), kNotCopiedBytes);
    if (!request->status().ok()) break;
    ASSERT_THAT(link.Send(*calls.back(), std::move(request), absl::Milliseconds(10)), IsOk());
    for (int idle = 0; idle < 200 && !calls.back()->done();) idle = world.Turn() == 0 ? idle + 1 : 0;
    if (!calls.back()->done()) break;
    ASSERT_LT(calls.size(), 10'000u);
  }
  EXPECT_GT(calls.size(), 500u);
  EXPECT_EQ(link.client_observer.closings, 0);
  calls.resize(1);
  world.Pass(absl::Milliseconds(20));
  PendingCall after;
  link.Call(after, NewMessage(world.client.messages(), 64));
  EXPECT_THAT(after.response, IsOk());
}

}  // namespace
}  // namespace hawser::transport
