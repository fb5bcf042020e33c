#include "hawser/transport/wire/exchange.h"

#include <string.h>

#include <memory>
#include <string>
#include <utility>
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
using ::testing::Not;

// ---- Content.

class EchoOfSizeTest : public ::testing::TestWithParam<size_t> {};

TEST_P(EchoOfSizeTest, RequestAndResponseArriveAsTheyWereBuilt) {
  World world;
  Link link(world);
  link.EchoAll();
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), GetParam(), seed));
    ASSERT_THAT(call.response, IsOk());
    EXPECT_EQ((*call.response)->body_bytes(), GetParam());
    EXPECT_EQ(Content(**call.response), ContentOf(GetParam(), seed));
  }
}

// 3904 bytes fill the first segment; larger bodies have two. 4048 bytes fit one SEND of 4096 bytes with the
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
      ASSERT_THAT(call.response, IsOk());
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
    ASSERT_THAT(call.response, IsOk());
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
  // Fewer over RDMA, because that is mostly an emulated machine.
  const uint32_t count = TestScheme() == "tcp" ? 64 : 32;
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t size = sizes[i % std::size(sizes)];
    auto call = std::make_unique<PendingCall>();
    ASSERT_TRUE(world.RunUntil([&] { return link.client_end->CanSend(); }));
    ASSERT_THAT(link.Send(*call, NewMessage(world.client.messages(), size, i)), IsOk());
    calls.push_back(std::move(call));
  }
  for (uint32_t i = 0; i < count; ++i) {
    PendingCall& call = *calls[i];
    ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
    ASSERT_THAT(call.response, IsOk());
    EXPECT_EQ(Content(**call.response), ContentOf(sizes[i % std::size(sizes)], i));
    EXPECT_EQ(call.ends, 1);
  }
}

// A payload that the application keeps in registered memory. It records when it is released.
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

TEST_P(AttachedTest, APayloadIsReleasedWhenTheExchangeHasEnded) {
  World world;
  Link link(world);
  link.EchoAll();
  Payload payload(world.client, GetParam());
  OutgoingMessagePtr request = world.client.messages().NewOutgoing();
  request->builder().getRoot<capnp::AnyPointer>().adopt(
      request->Attach(payload.data, std::move(payload.owner)));
  PendingCall call;
  link.Call(call, std::move(request));
  ASSERT_THAT(call.response, IsOk());
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
  ASSERT_THAT(call.response, IsOk());
  world.Pass(absl::Milliseconds(10));
  EXPECT_TRUE(payload.is_alive());
  EXPECT_EQ(link.client_end->exchanges_in_flight(), 0u);  // The slot is free before the memory.
  world.client.fabric->KeepBackRevocations(false);
  EXPECT_TRUE(world.RunUntil([&] { return !payload.is_alive(); }));
}

// Of two payloads, of which the device grants the first and refuses the second.
struct HalfGranted {
  explicit HalfGranted(World::Side& side)
      : first(side, 64 << 10), second(side, 64 << 10), message(side.messages().NewOutgoing()) {
    side.fabric->LimitGrants(1);
    side.fabric->KeepBackRevocations(true);
    auto list = message->builder().getRoot<capnp::AnyPointer>().initAs<capnp::List<capnp::Data>>(2);
    list.adopt(0, message->Attach(first.data, std::move(first.owner)));
    list.adopt(1, message->Attach(second.data, std::move(second.owner)));
  }

  Payload first, second;
  OutgoingMessagePtr message;
};

TEST(RevocationTest, ARequestThatIsNotSentIsKeptUntilWhatWasGrantedOfItIsRevoked) {
  World world;
  Link link(world);
  HalfGranted half(world.client);
  PendingCall call;
  EXPECT_THAT(link.Send(call, std::move(half.message)), HasCode(absl::StatusCode::kResourceExhausted));
  world.Pass(absl::Milliseconds(10));
  EXPECT_TRUE(half.first.is_alive()) << "the peer may READ it";
  EXPECT_TRUE(link.client_end->CanSend());
  world.client.fabric->KeepBackRevocations(false);
  EXPECT_TRUE(world.RunUntil([&] { return !half.first.is_alive() && !half.second.is_alive(); }));
}

TEST(RevocationTest, AResponseThatIsNotSentIsKeptUntilWhatWasGrantedOfItIsRevoked) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  const ExchangeId id = link.server.requests[0].id;
  HalfGranted half(world.server);
  EXPECT_THAT(link.Respond(id, std::move(half.message)), HasCode(absl::StatusCode::kResourceExhausted));
  link.RespondEmpty(id);
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.response, IsOk());
  world.Pass(absl::Milliseconds(10));
  EXPECT_TRUE(half.first.is_alive()) << "the peer may READ it";
  world.server.fabric->KeepBackRevocations(false);
  EXPECT_TRUE(world.RunUntil([&] { return !half.first.is_alive() && !half.second.is_alive(); }));
}

TEST_P(AttachedTest, APayloadOfAResponseIsReleasedWhenTheCallerHasIt) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  Payload payload(world.server, GetParam());
  OutgoingMessagePtr response = world.server.messages().NewOutgoing();
  response->builder().getRoot<capnp::AnyPointer>().adopt(
      response->Attach(payload.data, std::move(payload.owner)));
  ASSERT_THAT(link.Respond(link.server.requests[0].id, std::move(response)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_EQ(Content(**call.response), std::string(GetParam(), 'p'));
  world.Pass(absl::Milliseconds(2));
  EXPECT_TRUE(world.RunUntil([&] { return !payload.is_alive(); }));
}

// ---- Slots.

TEST(SlotTest, ARequestWithEverySlotBusyIsRefusedUntilOneIsFree) {
  World world;
  Link link(world, {.slots = 2});
  PendingCall first, second, third;
  ASSERT_THAT(link.Send(first, 8), IsOk());
  ASSERT_THAT(link.Send(second, 8), IsOk());
  EXPECT_FALSE(link.client_end->CanSend());
  EXPECT_THAT(link.Send(third, 8), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(link.client_observer.slots_freed, 0);
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == 2; }));
  EXPECT_EQ(link.client_counts().sends, 2u) << "the third posted something";
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return link.client_observer.slots_freed == 1; }));
  EXPECT_TRUE(link.client_end->CanSend());
  EXPECT_THAT(link.Send(third, 8), IsOk());
}

TEST(SlotTest, ARefusedRequestStaysTheCallers) {
  World world;
  Link link(world, {.slots = 1});
  PendingCall first, second;
  ASSERT_THAT(link.Send(first, 8), IsOk());
  OutgoingMessagePtr request = NewMessage(world.client.messages(), 1000);
  world.OnClient([&] {
    EXPECT_THAT(link.client_end->SendRequest(request, kNever, second), Not(IsOk()));
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
  first.on_response = [&] { EXPECT_THAT(link.Send(second, 8), IsOk()); };
  link.Call(first, NewMessage(world.client.messages(), 8));
  EXPECT_TRUE(world.RunUntil([&] { return second.done(); }));
  EXPECT_THAT(second.response, IsOk());
}

TEST(SlotTest, WhoWaitsForASlotMaySendFromInsideOnSlotFree) {
  World world;
  Link link(world, {.slots = 1});
  link.EchoAll();
  PendingCall calls[10];
  int sent = 0;
  link.client_observer.on_slot_free = [&] {
    if (sent < 10) {
      EXPECT_THAT(link.Send(calls[sent], 8), IsOk());
      ++sent;
    }
  };
  PendingCall first;
  link.Call(first, NewMessage(world.client.messages(), 8));
  EXPECT_TRUE(world.RunUntil([&] { return calls[9].done(); }));
  for (PendingCall& call : calls) EXPECT_EQ(call.ends, 1);
}

// ---- Sizes that one side refuses.

TEST(LimitTest, ARequestLargerThanTheServerTakesIsRefusedBeforeAnythingIsSent) {
  World world;
  Link link(world, {}, {.message_bytes_max = 10'000});
  PendingCall call;
  const absl::Status refused = link.Send(call, 10'008);
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Text(refused), HasSubstr("10008 bytes"));
  EXPECT_THAT(Text(refused), HasSubstr("at most 10000"));
  EXPECT_EQ(link.client_counts().sends, 0u);
  EXPECT_EQ(link.client_counts().grants, 0);
  EXPECT_THAT(link.Send(call, 10'000), IsOk());
}

TEST(LimitTest, AResponseLargerThanTheClientTakesIsRefusedAndAnotherMayFollow) {
  World world;
  Link link(world, {.message_bytes_max = 10'000}, {});
  PendingCall call;
  ASSERT_THAT(link.Send(call, 8), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  const absl::Status refused = link.Respond(link.server.requests[0].id, 10'008);
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Text(refused), HasSubstr("at most 10000"));
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_THAT(call.response, IsOk());
}

TEST(LimitTest, AMessageOfTooManySegmentsIsRefused) {
  World world;
  Link link(world);
  PendingCall call;
  const absl::Status refused = link.Send(call, MessageOfPayloads(world.client, 130));
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Text(refused), HasSubstr("at most 120"));
}

TEST(LimitTest, AMessageOfMoreLargeSegmentsThanCanBeGrantedIsRefused) {
  World world;
  Link link(world, {.slots = 1});
  world.client.fabric->LimitGrants(link.client_end->send_depth());
  PendingCall call;
  const absl::Status refused = link.Send(call, MessageOfPayloads(world.client, 60));
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Text(refused), HasSubstr("ConnectionOptions::slots"));
  EXPECT_EQ(link.client_counts().grants, 0);
}

TEST(LimitTest, AMessageOfAsManySegmentsAsThereMayBeArrives) {
  World world;
  Link link(world);
  PendingCall call;
  ASSERT_THAT(link.Send(call, MessageOfPayloads(world.client, 119)), IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return !link.server.requests.empty(); }));
  EXPECT_EQ(Parts(*link.server.requests[0].message).size(), 119u);
}

TEST(LimitTest, WhenNothingMoreCanBeGrantedTheRequestMayBeSentAgainLater) {
  World world;
  Link link(world, {.slots = 4});
  world.client.fabric->LimitGrants(link.client_end->send_depth());  // For two such requests, not three.
  std::vector<std::unique_ptr<PendingCall>> calls;
  absl::Status sent;
  do {
    calls.push_back(std::make_unique<PendingCall>());
    sent = link.Send(*calls.back(), MessageOfPayloads(world.client, 10));
  } while (sent.ok());
  EXPECT_THAT(sent, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(link.client_end->CanSend());
  const size_t in_flight = calls.size() - 1;
  ASSERT_EQ(in_flight, 2u);
  ASSERT_TRUE(world.RunUntil([&] { return link.server.requests.size() == in_flight; }));
  link.RespondEmpty(link.server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return calls[0]->done() || calls[1]->done(); }));
  EXPECT_THAT(link.Send(*calls.back(), MessageOfPayloads(world.client, 10)), IsOk());
}

}  // namespace
}  // namespace hawser::transport
