#include "hawser/transport/exchange.h"

#include <string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;

#define EXPECT_CODE(status, expected) EXPECT_EQ((status).code(), absl::StatusCode::expected) << (status)

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// ---- What arrives.

class EchoOfSizeTest : public ::testing::TestWithParam<size_t> {};

TEST_P(EchoOfSizeTest, RequestAndResponseArriveAsTheyWereBuilt) {
  World world;
  Link link(world);
  link.EchoAll();
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), GetParam(), seed));
    ASSERT_TRUE(call.response.ok()) << call.status();
    EXPECT_EQ((*call.response)->body_bytes(), GetParam());
    EXPECT_EQ(Content(**call.response), ContentOf(GetParam(), seed));
  }
}

// 3904 fill the first segment; above there are two, and 4048 is what fits one SEND of 4096 bytes beside the
// header and the table.
INSTANTIATE_TEST_SUITE_P(Bodies, EchoOfSizeTest,
                         ::testing::Values(0, 8, 16, 1024, 3896, 3904, 3920, 4040, 4048, 4056, 4096, 8192,
                                           64 << 10, kMiB, 16 * kMiB));

TEST(ExchangeTest, TheEnvelopeArrivesBesideTheBody) {
  World world;
  Link link(world);
  link.EchoAll();
  for (size_t size : {0, 8, 16, 24, 32}) {
    for (size_t body : {size_t{0}, size_t{64}, kMiB}) {
      std::vector<uint8_t> envelope(size, static_cast<uint8_t>(size + 1));
      OutgoingMessagePtr request = NewMessage(world.client.messages(), body);
      request->SetEnvelope(envelope);
      PendingCall call;
      link.Call(call, std::move(request));
      ASSERT_TRUE(call.response.ok()) << call.status();
      EXPECT_THAT((*call.response)->envelope(), ::testing::ElementsAreArray(envelope));
      EXPECT_EQ(Content(**call.response), ContentOf(body));
    }
  }
}

TEST(ExchangeTest, SegmentsSmallAndLargeArriveInTheirOrder) {
  World world;
  Link link(world);
  link.EchoAll();
  const std::vector<std::vector<size_t>> messages = {
      {1, 2, 3},
      {100, 5000, 100, 70000, 3},
      {kMiB, kMiB + 1, kMiB + 7, 3 * kMiB},
      std::vector<size_t>(50, 1024),
      std::vector<size_t>(100, 5000),
      {0, 0, 300000, 0},
  };
  for (const std::vector<size_t>& sizes : messages) {
    PendingCall call;
    link.Call(call, NewMessageOfParts(world.client.messages(), sizes));
    ASSERT_TRUE(call.response.ok()) << call.status();
    const std::vector<std::string> parts = Parts(**call.response);
    ASSERT_EQ(parts.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(parts[i], PartOf(i, sizes[i])) << "part " << i;
  }
}

TEST(ExchangeTest, LargeAndSmallCallsOfAllSlotsCrossInBothDirectionsAtOnce) {
  World world;
  Link link(world, {.slots = 16});
  link.EchoAll();
  const size_t sizes[] = {8, 8 * kMiB, 1000, 64 << 10, 5000, 3 * kMiB, 0, 300 << 10};
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (uint32_t i = 0; i < 64; ++i) {
    const size_t size = sizes[i % std::size(sizes)];
    auto call = std::make_unique<PendingCall>();
    ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
    ASSERT_TRUE(link.Send(*call, NewMessage(world.client.messages(), size, i)).ok());
    calls.push_back(std::move(call));
  }
  for (uint32_t i = 0; i < 64; ++i) {
    PendingCall& call = *calls[i];
    ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
    ASSERT_TRUE(call.response.ok()) << call.status();
    EXPECT_EQ(Content(**call.response), ContentOf(sizes[i % std::size(sizes)], i));
    EXPECT_EQ(call.ends, 1);
  }
}

// A payload that the application keeps in registered memory, and says when it was let go.
class Payload {
 public:
  Payload(World::Side& side, size_t size_bytes) {
    auto lease = std::make_shared<Lease>(*side.buffers().Acquire(size_bytes));
    data = capnp::Data::Reader(lease->data(), size_bytes);
    memset(lease->data(), 'p', size_bytes);
    watch_ = lease;
    owner = std::move(lease);
  }
  bool is_alive() const { return !watch_.expired(); }

  capnp::Data::Reader data;
  std::shared_ptr<const void> owner;

 private:
  std::weak_ptr<const void> watch_;
};

// A message of so many large segments.
OutgoingMessagePtr MessageOfPayloads(World::Side& side, unsigned count) {
  OutgoingMessagePtr message = side.messages().NewOutgoing();
  auto list = message->builder().getRoot<capnp::AnyPointer>().initAs<capnp::List<capnp::Data>>(count);
  for (unsigned i = 0; i < count; ++i) {
    Payload payload(side, 2000);
    list.adopt(i, message->Attach(payload.data, std::move(payload.owner)));
  }
  return message;
}

class AttachedTest : public ::testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(InlineAndLarge, AttachedTest, ::testing::Values(64, 2000, 64 << 10, 5 * kMiB));

TEST_P(AttachedTest, APayloadIsLetGoWhenTheExchangeHasEnded) {
  World world;
  Link link(world);
  link.EchoAll();
  Payload payload(world.client, GetParam());
  OutgoingMessagePtr request = world.client.messages().NewOutgoing();
  request->builder().getRoot<capnp::AnyPointer>().adopt(
      request->Attach(payload.data, std::move(payload.owner)));
  PendingCall call;
  link.Call(call, std::move(request));
  ASSERT_TRUE(call.response.ok()) << call.status();
  EXPECT_EQ(Content(**call.response), std::string(GetParam(), 'p'));
  EXPECT_TRUE(world.RunUntil([&] { return !payload.is_alive(); }));
}

TEST(RevocationTest, ThePayloadIsKeptUntilTheFabricSaysThatThePeerCannotReadItAnyMore) {
  World world;
  Link link(world);
  link.EchoAll();
  world.client.fabric->KeepBackRevocations(true);
  Payload payload(world.client, 64 << 10);
  OutgoingMessagePtr request = world.client.messages().NewOutgoing();
  request->builder().getRoot<capnp::AnyPointer>().adopt(
      request->Attach(payload.data, std::move(payload.owner)));
  PendingCall call;
  link.Call(call, std::move(request));
  ASSERT_TRUE(call.response.ok()) << call.status();
  world.Pass(absl::Milliseconds(10));
  EXPECT_TRUE(payload.is_alive());
  EXPECT_EQ(link.client_end->exchanges_in_flight(), 0u);  // The slot is not the memory.
  world.client.fabric->KeepBackRevocations(false);
  EXPECT_TRUE(world.RunUntil([&] { return !payload.is_alive(); }));
}

TEST_P(AttachedTest, APayloadOfAResponseIsLetGoWhenTheCallerHasIt) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  Payload payload(world.server, GetParam());
  OutgoingMessagePtr response = world.server.messages().NewOutgoing();
  response->builder().getRoot<capnp::AnyPointer>().adopt(
      response->Attach(payload.data, std::move(payload.owner)));
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, std::move(response)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_EQ(Content(**call.response), std::string(GetParam(), 'p'));
  world.Pass(absl::Milliseconds(2));
  EXPECT_FALSE(payload.is_alive());
}

// ---- Slots.

TEST(SlotTest, ARequestWithEverySlotBusyIsRefusedUntilOneIsFree) {
  World world;
  Link link(world, {.slots = 2});
  PendingCall first, second, third;
  ASSERT_TRUE(link.Send(first, 8).ok());
  ASSERT_TRUE(link.Send(second, 8).ok());
  EXPECT_FALSE(link.client_end->CanSend());
  EXPECT_CODE(link.Send(third, 8), kResourceExhausted);
  EXPECT_EQ(link.client_observer.slots_freed, 0);
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 2; }));
  EXPECT_EQ(link.client_counts().sends, 2u) << "the third posted something";
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return link.client_observer.slots_freed == 1; }));
  EXPECT_TRUE(link.client_end->CanSend());
  EXPECT_TRUE(link.Send(third, 8).ok());
}

TEST(SlotTest, ARefusedRequestStaysTheCallers) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall first, second;
  ASSERT_TRUE(link.Send(first, 8).ok());
  OutgoingMessagePtr request = NewMessage(world.client.messages(), 1000);
  world.OnClient([&] {
    EXPECT_FALSE(link.client_end->SendRequest(request, kNever, second).ok());
    EXPECT_NE(request, nullptr);
  });
}

TEST(SlotTest, TheAgreedSlotsAreTheMinimumOfBothSides) {
  World world;
  {
    Link link(world, {.slots = 3}, {.slots = 7});
    EXPECT_EQ(link.client_end->agreed().slots, 3);
    EXPECT_EQ(link.server_end->agreed().slots, 3);
  }
  Link link(world, {.slots = 7, .receive_buffer_bytes = 8192}, {.slots = 3, .receive_buffer_bytes = 1024});
  EXPECT_EQ(link.client_end->agreed().slots, 3);
  EXPECT_EQ(link.server_end->agreed().slots, 3);
  EXPECT_EQ(link.client_end->agreed().receive_buffer_bytes, 1024u);
  EXPECT_EQ(link.server_end->agreed().receive_buffer_bytes, 1024u);
}

TEST(SlotTest, ASlotIsReusedWithTheNextGeneration) {
  World world;
  Link link(world, {.slots = 1});
  link.EchoAll();
  for (uint32_t generation = 1; generation <= 5; ++generation) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), 8));
    EXPECT_TRUE((call.id == ExchangeId{0, generation})) << call.id.slot << ", " << call.id.generation;
  }
}

TEST(SlotTest, TheSlotIsFreeWhenTheHandlerHears) {
  World world;
  Link link(world, {.slots = 1});
  link.EchoAll();
  PendingCall first, second;
  first.on_response = [&] { EXPECT_TRUE(link.Send(second, 8).ok()); };
  link.Call(first, NewMessage(world.client.messages(), 8));
  EXPECT_TRUE(world.RunUntil([&] { return second.done(); }));
  EXPECT_TRUE(second.response.ok());
}

TEST(SlotTest, WhoWaitsForASlotMaySendFromInsideOnSlotFree) {
  World world;
  Link link(world, {.slots = 1});
  link.EchoAll();
  PendingCall calls[10];
  int sent = 0;
  link.client_observer.on_slot_free = [&] {
    if (sent < 10) {
      EXPECT_TRUE(link.Send(calls[sent], 8).ok());
      ++sent;
    }
  };
  PendingCall first;
  link.Call(first, NewMessage(world.client.messages(), 8));
  EXPECT_TRUE(world.RunUntil([&] { return calls[9].done(); }));
  for (PendingCall& call : calls) EXPECT_EQ(call.ends, 1);
}

// ---- Sizes that one side does not take.

TEST(LimitTest, ARequestLargerThanTheServerTakesIsRefusedBeforeAnythingIsSent) {
  World world;
  Link link(world, {}, {.message_bytes_max = 10'000});
  PendingCall call;
  const absl::Status refused = link.Send(call, 10'008);
  EXPECT_CODE(refused, kInvalidArgument);
  EXPECT_THAT(Text(refused), HasSubstr("10008 bytes"));
  EXPECT_THAT(Text(refused), HasSubstr("at most 10000"));
  EXPECT_EQ(link.client_counts().sends, 0u);
  EXPECT_EQ(link.client_counts().grants, 0);
  EXPECT_TRUE(link.Send(call, 10'000).ok());
}

TEST(LimitTest, AResponseLargerThanTheClientTakesIsRefusedAndAnotherMayFollow) {
  World world;
  Link link(world, {.message_bytes_max = 10'000}, {});
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  const absl::Status refused = link.Respond(link.server.requests[0].id, 10'008);
  EXPECT_CODE(refused, kInvalidArgument);
  EXPECT_THAT(Text(refused), HasSubstr("at most 10000"));
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_TRUE(call.response.ok());
}

TEST(LimitTest, AMessageOfTooManySegmentsIsRefused) {
  World world;
  Link link(world);
  PendingCall call;
  const absl::Status refused = link.Send(call, MessageOfPayloads(world.client, 130));
  EXPECT_CODE(refused, kInvalidArgument);
  EXPECT_THAT(Text(refused), HasSubstr("at most 120"));
}

TEST(LimitTest, AMessageOfMoreLargeSegmentsThanCanBeGrantedIsRefused) {
  World world;
  Link link(world, {.slots = 1});
  world.client.fabric->LimitGrants(link.client_end->send_queue().depth());
  PendingCall call;
  const absl::Status refused = link.Send(call, MessageOfPayloads(world.client, 60));
  EXPECT_CODE(refused, kInvalidArgument);
  EXPECT_THAT(Text(refused), HasSubstr("ConnectionOptions::slots"));
  EXPECT_EQ(link.client_counts().grants, 0);
}

TEST(LimitTest, AMessageOfAsManySegmentsAsThereMayBeArrives) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, MessageOfPayloads(world.client, 119)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  EXPECT_EQ(Parts(*link.server.requests[0].message).size(), 119u);
}

TEST(LimitTest, WhenNothingMoreCanBeGrantedTheRequestMayBeSentAgainLater) {
  World world;
  Link link(world, {.slots = 4});
  world.client.fabric->LimitGrants(
      link.client_end->send_queue().depth());  // Two requests of these, not three.
  std::vector<std::unique_ptr<PendingCall>> calls;
  absl::Status sent;
  do {
    calls.push_back(std::make_unique<PendingCall>());
    sent = link.Send(*calls.back(), MessageOfPayloads(world.client, 10));
  } while (sent.ok());
  EXPECT_CODE(sent, kResourceExhausted);
  EXPECT_TRUE(link.client_end->CanSend());
  const size_t in_flight = calls.size() - 1;
  ASSERT_EQ(in_flight, 2u);
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == in_flight; }));
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return calls[0]->done() || calls[1]->done(); }));
  EXPECT_TRUE(link.Send(*calls.back(), MessageOfPayloads(world.client, 10)).ok());
}

// ---- Deadlines.

TEST(DeadlineTest, ACallThatIsNotAnsweredEndsAtItsDeadlineAndItsServerHears) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8, absl::Milliseconds(5)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.Pass(absl::Milliseconds(4));
  EXPECT_FALSE(call.done());
  EXPECT_TRUE(link.server.cancelled.empty());
  world.Pass(absl::Milliseconds(2));
  EXPECT_CODE(call.status(), kDeadlineExceeded);
  ASSERT_EQ(link.server.cancelled.size(), 1u);
  EXPECT_CODE(link.server.cancelled[0].second, kDeadlineExceeded);
}

TEST(DeadlineTest, TheServerIsToldTheTimeThatIsLeft) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8, absl::Milliseconds(7)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  const int64_t left_ns = link.server.requests[0].deadline_ns - world.clock.NowNs();
  EXPECT_GE(left_ns, 7'000'000);
  EXPECT_LE(left_ns, 7'002'000);
}

TEST(DeadlineTest, ACallWithoutADeadlineHasNoneAtTheServer) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  EXPECT_EQ(link.server.requests[0].deadline_ns, kNever);
}

TEST(DeadlineTest, ADeadlineBeyondWhatTheWireCarriesIsKeptAllTheSame) {
  World world;
  ConnectionOptions no_keepalive;
  no_keepalive.keepalive_interval = absl::InfiniteDuration();
  Link link(world, no_keepalive);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8, absl::Hours(2)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.Pass(absl::Minutes(119), absl::Minutes(1));
  EXPECT_FALSE(call.done());
  EXPECT_TRUE(link.server.cancelled.empty()) << "ended by the server, too early";
  world.Pass(absl::Minutes(2), absl::Minutes(1));
  EXPECT_CODE(call.status(), kDeadlineExceeded);
  EXPECT_EQ(link.server.cancelled.size(), 1u);
}

TEST(DeadlineTest, EachCallEndsAtItsOwnDeadline) {
  World world;
  Link link(world);
  PendingCall calls[5];
  const int deadlines_ms[] = {30, 10, 50, 20, 40};
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(link.Send(calls[i], 8, absl::Milliseconds(deadlines_ms[i])).ok());
  for (int now_ms = 1; now_ms <= 60; ++now_ms) {
    world.Pass(absl::Milliseconds(1));
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(calls[i].done(), now_ms >= deadlines_ms[i]) << i << " at " << now_ms;
  }
}

TEST(DeadlineTest, ADeadlineThatIsPastEndsTheCallAtOnce) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8, absl::ZeroDuration()).ok());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_CODE(call.status(), kDeadlineExceeded);
}

TEST(DeadlineTest, AResponseAfterTheDeadlineIsDroppedAndFreesTheSlot) {
  for (size_t response_bytes : {size_t{8}, kMiB}) {
    World world;
    Link link(world, {.slots = 1});
    PendingCall late;
    ASSERT_TRUE(link.Send(late, 8, absl::Milliseconds(5)).ok());
    ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
    world.Pass(absl::Milliseconds(6));
    ASSERT_TRUE(late.done());
    EXPECT_FALSE(link.client_end->CanSend()) << "the peer still has the request's memory";
    ASSERT_TRUE(link.Respond(link.server.requests[0].id, response_bytes).ok());
    ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
    EXPECT_EQ(late.ends, 1);
    EXPECT_EQ(link.client_counts().reads, 0u);
    PendingCall next;
    ASSERT_TRUE(link.Send(next, 8).ok());
    ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 2; }));
    link.RespondEmpty(link.server.requests[1].id);
    ASSERT_TRUE(world.RunUntil([&] { return next.done(); }));
    EXPECT_TRUE(next.response.ok());
  }
}

TEST(DeadlineTest, ItReachesTheReadOfALargeResponse) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8, absl::Milliseconds(5)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, 64 * kMiB).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.client_counts().reads > 0; }));
  world.clock.Advance(absl::Milliseconds(6));
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_CODE(call.status(), kDeadlineExceeded);
  EXPECT_THAT(Text(call.status()), HasSubstr("READ"));
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
  EXPECT_LT(link.client_counts().read_bytes, 64 * kMiB) << "it went on pulling";
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0) << "the server was not told to let the response go";
}

TEST(DeadlineTest, ItReachesTheReadOfALargeRequest) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 64 * kMiB, absl::Milliseconds(5)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads > 0; }));
  link.server.on_bad_request = [&](ExchangeId id) { link.RespondEmpty(id); };
  world.clock.Advance(absl::Milliseconds(6));
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_CODE(call.status(), kDeadlineExceeded);
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
  EXPECT_LT(link.server_counts().read_bytes, 64 * kMiB) << "it went on pulling";
  EXPECT_EQ(link.server.request_count, 0u);
  ASSERT_EQ(link.server.bad_requests.size(), 1u);
  EXPECT_CODE(link.server.bad_requests[0].second, kDeadlineExceeded);
  EXPECT_EQ(link.client_counts().grants, 0);
}

// ---- Cancelling.

TEST(CancelTest, TheCallerHearsAtOnceAndTheServerSoon) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  EXPECT_CODE(call.status(), kCancelled);
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.cancelled.empty(); }));
  EXPECT_TRUE((link.server.cancelled[0].first == call.id));
  EXPECT_CODE(link.server.cancelled[0].second, kCancelled);
}

TEST(CancelTest, TwiceIsOnce) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  for (int i = 0; i < 2; ++i) world.OnClient([&] { link.client_end->Cancel(call.id); });
  world.Settle();
  EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(link.server.cancelled.size(), 1u);
}

TEST(CancelTest, LateIsFineAndHitsNoOtherCallOfTheSlot) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall first, second;
  ASSERT_TRUE(link.Send(first, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return first.done(); }));
  ASSERT_TRUE(link.Send(second, 8).ok());
  world.OnClient([&] {
    link.client_end->Cancel(first.id);
    link.client_end->Cancel({500, 1});
  });
  world.Settle();
  EXPECT_TRUE(first.response.ok());
  EXPECT_FALSE(second.done());
  EXPECT_TRUE(link.server.cancelled.empty());
}

TEST(CancelTest, ACancellationThatMeetsTheResponseOnItsWayHitsNothing) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  link.RespondEmpty(link.server.requests[0].id);              // On its way one way,
  world.OnClient([&] { link.client_end->Cancel(call.id); });  // and the other.
  world.Settle();
  EXPECT_CODE(call.status(), kCancelled);
  EXPECT_EQ(call.ends, 1);
  EXPECT_TRUE(link.server.cancelled.empty());
  EXPECT_TRUE(link.client_end->CanSend());
}

TEST(CancelTest, ManyAtOnceAllReachTheServer) {
  World world;
  Link link(world, {.slots = 100});
  std::vector<PendingCall> calls(100);
  for (PendingCall& call : calls) ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 100; }));
  world.OnClient([&] {
    for (PendingCall& call : calls) link.client_end->Cancel(call.id);
  });
  EXPECT_TRUE(world.RunUntil([&] { return link.server.cancelled.size() == 100; }));
}

TEST(CancelTest, ItStopsTheReadOfALargeResponse) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, 64 * kMiB).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.client_counts().reads > 0; }));
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  EXPECT_CODE(call.status(), kCancelled);
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
  EXPECT_LT(link.client_counts().read_bytes, 64 * kMiB);
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0);
  EXPECT_EQ(call.ends, 1);
}

TEST(CancelTest, ItStopsTheReadOfALargeRequest) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 64 * kMiB).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads > 0; }));
  link.server.on_bad_request = [&](ExchangeId id) { link.RespondEmpty(id); };
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
  EXPECT_LT(link.server_counts().read_bytes, 64 * kMiB);
  ASSERT_EQ(link.server.bad_requests.size(), 1u);
  EXPECT_CODE(link.server.bad_requests[0].second, kCancelled);
}

TEST(CancelTest, TheHandlerMayAnswerFromInsideOnCancel) {
  World world;
  Link link(world, {.slots = 1});
  link.server.on_cancel = [&](ExchangeId id) { link.RespondEmpty(id); };
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  EXPECT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
}

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
  ASSERT_TRUE(link.Send(call, kMiB, absl::Milliseconds(5)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  world.Pass(absl::Milliseconds(10));
  EXPECT_CODE(call.status(), kDeadlineExceeded);
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

// ---- Work requests.

TEST(WorkRequestTest, OneSmallSendInSixteenIsSignaled) {
  World world;
  Link link(world);
  link.EchoAll();
  for (int i = 0; i < 320; ++i) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), 64));
  }
  EXPECT_EQ(link.client_counts().sends, 320u);
  EXPECT_EQ(link.client_counts().signaled_sends, 20u);
  EXPECT_EQ(link.server_counts().signaled_sends, 20u);
}

TEST(WorkRequestTest, WhatOneTurnGivesRiseToIsPostedAsOneChain) {
  World world;
  Link link(world);
  link.EchoAll();
  std::vector<PendingCall> calls(20);
  world.OnClient([&] {
    for (PendingCall& call : calls) ASSERT_TRUE(link.Send(call, 64).ok());
  });
  EXPECT_EQ(link.client_counts().send_posts, 1u);
  ASSERT_TRUE(world.RunUntil([&] { return calls[19].done(); }));
}

TEST(WorkRequestTest, AnswersInALongTurnArePostedEarlyUnlessThePeerWaitsForThisCore) {
  for (const bool share : {false, true}) {
    SCOPED_TRACE(share);
    World world;
    Link link(world, {.slots = 64});
    link.EchoAll();
    world.server.fabric->SetPeersShareCore(share);
    std::vector<PendingCall> calls(64);
    world.OnClient([&] {
      for (PendingCall& call : calls) ASSERT_TRUE(link.Send(call, 8).ok());
    });
    ASSERT_TRUE(world.RunUntil([&] { return calls[63].done(); }));
    EXPECT_EQ(link.server_counts().sends, 64u);
    EXPECT_EQ(link.server_counts().send_posts, share ? 1u : 2u);
  }
}

TEST(WorkRequestTest, APostedReceiveWaitsForEverythingThatThePeerMaySend) {
  World world;
  Link link(world, {.slots = 8});
  link.EchoAll();
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (int i = 0; i < 200; ++i) {
    calls.push_back(std::make_unique<PendingCall>());
    ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
    ASSERT_TRUE(link.Send(*calls.back(), i % 10 == 0 ? kMiB : 64).ok());
  }
  ASSERT_TRUE(world.RunUntil([&] { return calls.back()->done(); }));
  // When all eight have come in one turn, the receives for control and the spare are left.
  EXPECT_GE(link.server_counts().receives_posted_min, 3);
  EXPECT_GE(link.client_counts().receives_posted_min, 3);
  world.Settle();
  EXPECT_EQ(link.server_counts().receives_posted, link.server_counts().receive_depth);
}

TEST(WorkRequestTest, ReadsStayWithinTheDepthOfTheQueuePairAndTheBudgetOfThePoller) {
  RuntimeOptions options;
  options.poller.read_bytes_max = 1 << 20;  // Four READs of 256 KiB.
  World world({}, options);
  Link one(world), two(world);
  PendingCall first, second;
  ASSERT_TRUE(one.Send(first, 32 * kMiB).ok());
  ASSERT_TRUE(two.Send(second, 32 * kMiB).ok());
  uint64_t most = 0;
  ASSERT_TRUE(world.RunUntil([&] {
    most = std::max(most, world.server.poller().read_budget().taken_bytes());
    return !one.server.requests.empty() && !two.server.requests.empty();
  }));
  EXPECT_LE(most, uint64_t{1 << 20});
  EXPECT_LE(one.server_counts().reads_outstanding_max, 4);
  EXPECT_EQ(world.server.poller().read_budget().taken_bytes(), 0u);
}

TEST(WorkRequestTest, LargeMessagesOfTwoConnectionsShareTheBudget) {
  RuntimeOptions options;
  options.poller.read_bytes_max = 1 << 20;
  World world({}, options);
  Link one(world), two(world);
  PendingCall first, second;
  ASSERT_TRUE(one.Send(first, 64 * kMiB).ok());
  ASSERT_TRUE(world.RunUntil([&] { return one.server_counts().reads > 20; }));
  ASSERT_TRUE(two.Send(second, 16 * kMiB).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !two.server.requests.empty(); }));
  EXPECT_TRUE(one.server.requests.empty()) << "the second waited for all of the first";
}

TEST(WorkRequestTest, SmallCallsPassWhileALargeOneIsRead) {
  World world;
  Link link(world);
  link.EchoAll();
  PendingCall bulk;
  ASSERT_TRUE(link.Send(bulk, 64 * kMiB).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.server_counts().reads > 0; }));
  int passed = 0;
  while (!bulk.done() && passed < 5) {
    PendingCall small;
    link.Call(small, NewMessage(world.client.messages(), 64));
    ASSERT_TRUE(small.response.ok());
    ++passed;
  }
  EXPECT_EQ(passed, 5) << "small calls waited behind the large one";
  ASSERT_TRUE(world.RunUntil([&] { return bulk.done(); }));
  EXPECT_TRUE(bulk.response.ok());
}

TEST(WorkRequestTest, APeerWhoseNicAcknowledgesNothingIsSentNoMoreThanTheSendQueueHolds) {
  World world;
  Link link(world, {.slots = 2});
  link.EchoAll();
  world.client.fabric->KeepBackSendCompletions(true);
  PendingCall calls[100];
  int sent = 0;
  for (PendingCall& call : calls) {
    if (!link.Send(call, 64, absl::Milliseconds(1)).ok()) break;
    ++sent;
    world.Pass(absl::Milliseconds(2));
  }
  EXPECT_LT(sent, 40);
  EXPECT_EQ(link.client_counts().sends, link.client_end->send_queue().depth());
  // What still waits when it acknowledges again, goes on.
  world.client.fabric->KeepBackSendCompletions(false);
  ASSERT_TRUE(world.RunUntil([&] { return link.client_end->exchanges_in_flight() == 0; }));
  PendingCall after;
  link.Call(after, NewMessage(world.client.messages(), 64));
  EXPECT_TRUE(after.response.ok());
}

// ---- Memory that runs out.

// A pool that the test can exhaust: everything beyond what is leased now.
class Hoard {
 public:
  explicit Hoard(BufferPool& pool, size_t size_bytes) {
    while (true) {
      absl::StatusOr<Lease> lease = pool.Acquire(size_bytes);
      if (!lease.ok()) return;
      leases_.push_back(*std::move(lease));
    }
  }
  void Drop(size_t count) {
    for (; count > 0 && !leases_.empty(); --count) leases_.pop_back();
  }
  void DropAll() { leases_.clear(); }

 private:
  std::vector<Lease> leases_;
};

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
  ASSERT_TRUE(link.Send(call, 4 * kMiB, absl::Seconds(1)).ok());
  world.Pass(absl::Milliseconds(20));
  EXPECT_TRUE(link.server.requests.empty());
  EXPECT_EQ(link.server_counts().reads, 0u);
  hoard.DropAll();
  world.clock.Advance(absl::Milliseconds(2));
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  EXPECT_EQ(Content(*link.server.requests[0].message), ContentOf(4 * kMiB));
}

TEST(MemoryTest, ALargeRequestThatFindsNoneIsRefusedAtItsDeadline) {
  World world({}, PoolOf(16 * kMiB));
  Link link(world);
  Hoard hoard(world.server.buffers(), kMiB);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 4 * kMiB, absl::Milliseconds(10)).ok());
  world.Pass(absl::Milliseconds(12));
  ASSERT_EQ(link.server.bad_requests.size(), 1u);
  EXPECT_CODE(link.server.bad_requests[0].second, kResourceExhausted);
  EXPECT_THAT(Text(link.server.bad_requests[0].second), HasSubstr("BufferPoolOptions::limit_bytes"));
  EXPECT_CODE(call.status(), kDeadlineExceeded);
}

TEST(MemoryTest, ALargeResponseWaitsForMemoryAndGoesOn) {
  World world(PoolOf(16 * kMiB), {});
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8, absl::Seconds(1)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  Hoard hoard(world.client.buffers(), kMiB);
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, 4 * kMiB).ok());
  world.Pass(absl::Milliseconds(20));
  EXPECT_FALSE(call.done());
  hoard.DropAll();
  world.clock.Advance(absl::Milliseconds(2));
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  ASSERT_TRUE(call.response.ok()) << call.status();
  EXPECT_EQ(Content(**call.response), ContentOf(4 * kMiB));
}

TEST(MemoryTest, ALargeResponseThatFindsNoneEndsWithResourceExhaustedAtTheDeadline) {
  World world(PoolOf(16 * kMiB), {});
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8, absl::Milliseconds(10)).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  Hoard hoard(world.client.buffers(), kMiB);
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, 4 * kMiB).ok());
  world.Pass(absl::Milliseconds(12));
  EXPECT_CODE(call.status(), kResourceExhausted);
  EXPECT_THAT(Text(call.status()), HasSubstr("BufferPoolOptions::limit_bytes"));
  EXPECT_TRUE(link.client_end->CanSend());
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0);
}

TEST(MemoryTest, ALargeResponseThatIsCancelledWhileItWaitsIsReleased) {
  World world(PoolOf(16 * kMiB), {});
  Link link(world, {.slots = 1});
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  Hoard hoard(world.client.buffers(), kMiB);
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, 4 * kMiB).ok());
  world.Settle();
  world.OnClient([&] { link.client_end->Cancel(call.id); });
  EXPECT_CODE(call.status(), kCancelled);
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
    EXPECT_CODE(link.server.bad_requests[0].second, kResourceExhausted);
  }
  World world(PoolOf(8 * kMiB), {});
  Link link(world);
  PendingCall call;
  ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  ASSERT_TRUE(link.Respond(link.server.requests[0].id, 20 * kMiB).ok());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_CODE(call.status(), kResourceExhausted);
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().grants, 0);
}

TEST(MemoryTest, ARequestThatWasNotBuiltInRegisteredMemoryIsRefused) {
  World world(PoolOf(8 * kMiB), {});
  Link link(world);
  PendingCall call;
  const absl::Status refused = link.Send(call, 20 * kMiB);
  EXPECT_CODE(refused, kResourceExhausted);
  EXPECT_EQ(link.client_counts().sends, 0u);
}

TEST(MemoryTest, TheRingIsFilledAgainWhenThereIsMemory) {
  World world({}, PoolOf(8 * kMiB));
  Link link(world, {.slots = 4});
  Hoard hoard(world.server.buffers(), 4096);
  // The server keeps what it gets, so each request takes a buffer out of the ring; honest callers meet no
  // RNR.
  PendingCall calls[4];
  for (PendingCall& call : calls) ASSERT_TRUE(link.Send(call, 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 4; }));
  EXPECT_LT(link.server_counts().receives_posted, link.server_counts().receive_depth);
  hoard.Drop(10);
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(link.server_counts().receives_posted, link.server_counts().receive_depth);
}

TEST(MemoryTest, AnAnswerThatAReceiveIsMissingForWaitsForMemory) {
  World world({}, PoolOf(8 * kMiB));
  Link link(world, {.slots = 4});
  std::vector<OutgoingMessagePtr> answers;
  for (int i = 0; i < 8; ++i) answers.push_back(NewMessage(world.server.messages(), 8));
  Hoard hoard(world.server.buffers(), 4096);
  world.server.fabric->KeepBackSendCompletions(true);  // So that nothing that was sent is free again.
  PendingCall calls[8];
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(link.Send(calls[i], 8).ok());
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 4; }));
  // Four buffers are kept by the application, three are in the ring: two requests may come, and a control
  // message.
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(link.Respond(link.server.requests[i].id, std::move(answers[i])).ok());
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
  // Until the pool has nothing left for the next request, or the ring nothing for its answer.
  while (true) {
    calls.push_back(std::make_unique<PendingCall>());
    OutgoingMessagePtr request = NewMessage(world.client.messages(), 64);
    if (!request->status().ok()) break;
    ASSERT_TRUE(link.Send(*calls.back(), std::move(request), absl::Milliseconds(10)).ok());
    world.Settle();
    if (!calls.back()->done()) break;
    ASSERT_LT(calls.size(), 10'000u);
  }
  EXPECT_GT(calls.size(), 500u);
  EXPECT_EQ(link.client_observer.closings, 0);
  calls.resize(1);
  world.Pass(absl::Milliseconds(20));
  PendingCall after;
  link.Call(after, NewMessage(world.client.messages(), 64));
  EXPECT_TRUE(after.response.ok()) << after.status();
}

}  // namespace
}  // namespace hawser::transport
