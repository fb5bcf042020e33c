// Responses that end a grant of their request (kFeatureEndsGrants), over verbs, on a device in memory with
// memory windows.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/tests/transport/testing/endpoint.h"
#include "hawser/tests/transport/testing/hoard.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/raw_message.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/wire.h"

namespace hawser::transport {
namespace {

using fabric::GrantKind;

constexpr size_t kLarge = 64 << 10;

std::shared_ptr<fabric::Fabric> NewFabric(GrantKind grants) {
  static fabric::ExecutingVerbs* const verbs = new fabric::ExecutingVerbs({});
  return fabric::NewVerbsFabric({.device = "fake0", .grants = grants, .library = &verbs->library()}).value();
}

// The client has windows, and the server what it is given.
std::function<std::shared_ptr<fabric::Fabric>()> Sides(GrantKind server) {
  return [first = true, server]() mutable {
    return NewFabric(std::exchange(first, false) ? GrantKind::kWindows : server);
  };
}

// ---- Among honest ends

class EndedGrantsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    world_.Settle();
    EXPECT_EQ(link_.client_counts().grants, 0);
    EXPECT_EQ(link_.client_observer.closings + link_.server_observer.closings, 0);
  }

  World world_{{}, {}, Sides(GrantKind::kWindows)};
  Link link_{world_};
};

TEST_F(EndedGrantsTest, TheResponseToALargeRequestEndsOneGrantOfIt) {
  link_.EchoAll();
  uint64_t ended = 0;
  for (const auto& parts : std::vector<std::vector<size_t>>{{kLarge}, {kLarge, kLarge, kLarge}, {1 << 20}}) {
    for (int i = 0; i < 3; ++i) {
      PendingCall call;
      link_.Call(call, NewMessageOfParts(world_.client.messages(), parts));
      ASSERT_THAT(call.status(), IsOk());
      for (size_t part = 0; part < parts.size(); ++part) {
        EXPECT_EQ(Parts(**call.response)[part], PartOf(part, parts[part]));
      }
      EXPECT_EQ(link_.server_counts().sends_that_end_grants, ++ended);
    }
  }
  PendingCall small;
  link_.Call(small, NewMessage(world_.client.messages(), 64));
  EXPECT_EQ(link_.server_counts().sends_that_end_grants, ended) << "a small request grants nothing";
  EXPECT_EQ(link_.client_counts().sends_that_end_grants, 0u);
}

TEST_F(EndedGrantsTest, TheResponseToACallThatWasCancelledEndsItsGrantToo) {
  PendingCall call, next;
  ASSERT_THAT(link_.Send(call, kLarge), IsOk());
  ASSERT_TRUE(world_.RunUntil([&] { return link_.server.requests.size() == 1; }));
  world_.OnClient([&] { link_.client_end->Cancel(call.id); });
  ASSERT_TRUE(world_.RunUntil([&] { return call.done() && link_.server.cancelled.size() == 1; }));
  link_.RespondEmpty(link_.server.requests[0].id);
  link_.server.requests.clear();
  world_.Settle();
  EXPECT_EQ(link_.server_counts().sends_that_end_grants, 1u);
  link_.EchoAll();
  link_.Call(next, NewMessage(world_.client.messages(), kLarge));
  EXPECT_THAT(next.status(), IsOk());
}

// Requests that are announced, and find no memory at the server.
class RefusedRequestTest : public ::testing::Test {
 protected:
  static RuntimeOptions SmallPool() {
    RuntimeOptions options;
    options.pool.limit_bytes = 8 << 20;
    return options;
  }

  // The only request was not READ. The response to it, and to one that is READ after it.
  void AnswerTheRefusal() {
    ASSERT_EQ(link_.server.bad_requests.size(), 1u);
    EXPECT_EQ(link_.server.request_count, 0u);
    EXPECT_EQ(link_.server_counts().reads, 0u);
    hoard_.DropAll();
    link_.RespondEmpty(link_.server.bad_requests[0].first);
    world_.Settle();
    EXPECT_EQ(link_.server_counts().sends_that_end_grants, 0u);
    EXPECT_EQ(link_.client_counts().grants, 0) << "the client revokes it";
    link_.EchoAll();
    PendingCall next;
    link_.Call(next, NewMessage(world_.client.messages(), kLarge));
    EXPECT_THAT(next.status(), IsOk());
    EXPECT_EQ(link_.server_counts().sends_that_end_grants, 1u);
    EXPECT_EQ(link_.client_observer.closings + link_.server_observer.closings, 0);
  }

  World world_{{}, SmallPool(), Sides(GrantKind::kWindows)};
  Link link_{world_};
  Hoard hoard_{world_.server.buffers(), kLarge};
};

TEST_F(RefusedRequestTest, RequestThatFoundNoMemoryInTimeKeepsItsGrant) {
  PendingCall call;
  ASSERT_THAT(link_.Send(call, kLarge, absl::Milliseconds(10)), IsOk());
  world_.Pass(absl::Milliseconds(12));
  AnswerTheRefusal();
  EXPECT_EQ(call.ends, 1);
}

TEST_F(RefusedRequestTest, RequestThatIsCancelledBeforeItIsReadKeepsItsGrant) {
  PendingCall call;
  ASSERT_THAT(link_.Send(call, kLarge), IsOk());
  world_.Settle();
  ASSERT_FALSE(call.done());
  world_.OnClient([&] { link_.client_end->Cancel(call.id); });
  world_.Settle();
  AnswerTheRefusal();
  EXPECT_EQ(call.ends, 1);
}

TEST(EndedGrantsOfOneSideTest, WithoutWindowsOnBothSidesNoResponseEndsAGrant) {
  for (const GrantKind server : {GrantKind::kRegistered, GrantKind::kShared}) {
    World world({}, {}, Sides(server));
    Link link(world);
    link.EchoAll();
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), kLarge));
    EXPECT_THAT(call.status(), IsOk());
    EXPECT_EQ(link.server_counts().sends, 1u);
    EXPECT_EQ(link.server_counts().sends_that_end_grants, 0u);
    EXPECT_EQ(link.server_counts().sends_that_name_memory, 0u);
  }
}

// The side that has dialed answers the requests. It has windows, the side that sends them has what it is
// given.
class ReverseStage {
 public:
  ReverseStage(GrantKind accepting, uint32_t features) : world_({}, {}, Sides(accepting)) {
    listener_.on_peer = [&](PeerRequest request) {
      accepted_ =
          *Connection::Accept(world_.server.poller(), std::move(request), {}, {}, observers_[1], nullptr);
    };
    handler_.answer = [&](RecordingServer::Request request) {
      OutgoingMessagePtr response = NewMessage(world_.client.messages(), 0);
      EXPECT_THAT(dialed_->Respond(request.id, response), IsOk());
    };
    Handshake hello;
    hello.role = Role::kReverse;
    hello.features = features;
    world_.OnClient([&] {
      dialed_ = *Connection::Dial(world_.client.poller(), listener_.address(), {}, hello, absl::Seconds(5),
                                  observers_[0], &handler_);
    });
  }
  ~ReverseStage() {
    world_.OnServer([&] { accepted_->Close(); });
    EXPECT_TRUE(world_.RunUntil([&] { return observers_[0].closings == 1 && observers_[1].closings == 1; }));
  }

  // Of the SENDs that answer a large request.
  uint64_t EndedByACall() {
    EXPECT_TRUE(world_.RunUntil([&] { return observers_[0].ready && observers_[1].ready; }));
    PendingCall call;
    world_.OnServer([&] {
      OutgoingMessagePtr request = NewMessage(world_.server.messages(), kLarge);
      ASSERT_THAT(accepted_->SendRequest(request, kNever, call), IsOk());
    });
    EXPECT_TRUE(world_.RunUntil([&] { return call.done(); }));
    EXPECT_THAT(call.status(), IsOk());
    return world_.client.fabric->counts(0).sends_that_end_grants;
  }

 private:
  World world_;
  TestListener listener_{world_, world_.server};
  RecordingObserver observers_[2];
  RecordingServer handler_;
  Connection *dialed_ = nullptr, *accepted_ = nullptr;
};

TEST(ReverseEndingTest, AReverseConnectionEndsGrantsIfItsSessionDoesAndItsPeerCan) {
  EXPECT_EQ(ReverseStage(GrantKind::kWindows, kFeatureEndsGrants).EndedByACall(), 1u);
  EXPECT_EQ(ReverseStage(GrantKind::kWindows, 0).EndedByACall(), 0u);
  EXPECT_EQ(ReverseStage(GrantKind::kRegistered, kFeatureEndsGrants).EndedByACall(), 0u);
}

// ---- A hostile server

class HostileEndingTest : public ::testing::Test {
 protected:
  void Connect(uint32_t features = kFeatureEndsGrants) {
    Handshake hello = HostilePeer::Hello();
    hello.features = features;
    const SocketAddress address = peer_.Listen(Encode(hello));
    world_.OnClient([&] {
      absl::StatusOr<Connection*> dialed = Connection::Dial(world_.client.poller(), address, {}, Handshake(),
                                                            absl::Seconds(5), observer_, nullptr);
      ASSERT_THAT(dialed, IsOk());
      victim_ = *dialed;
    });
    ASSERT_TRUE(world_.RunUntil([&] { return observer_.ready.has_value() && peer_.established(); }));
    EXPECT_EQ(observer_.ready->features & kFeatureEndsGrants, features & kFeatureEndsGrants);
  }

  // A large call. Returns the rkey of its request's grant.
  uint32_t Call(PendingCall& call) {
    const size_t before = peer_.received().size();
    world_.OnClient([&] {
      OutgoingMessagePtr request = NewMessage(world_.client.messages(), kLarge);
      absl::StatusOr<ExchangeId> sent = victim_->SendRequest(request, kNever, call);
      ASSERT_THAT(sent, IsOk());
      call.id = *sent;
    });
    EXPECT_TRUE(world_.RunUntil([&] { return peer_.received().size() > before; }));
    const std::string& message = peer_.received().back();
    ParsedMessage parsed;
    EXPECT_THAT(Parse(reinterpret_cast<const uint8_t*>(message.data()), message.size(), parsed), IsOk());
    for (size_t i = 0; i < parsed.header.entries; ++i) {
      granted_ = DecodeTableEntry(parsed.table + i * kTableEntryBytes);
      if (granted_.rkey != 0) return granted_.rkey;
    }
    ADD_FAILURE() << "it grants nothing";
    return 0;
  }
  void Answer(const PendingCall& call, uint32_t ends_rkey = 0) {
    peer_.Send(RawResponse(call.id.slot, call.id.generation).Encode(), ends_rkey);
  }
  // A response of 12 GiB, which no side takes.
  void AnswerWithTooMuch(PendingCall& call, uint32_t ends_rkey) {
    RawMessage response = RawResponse(call.id.slot, call.id.generation);
    response.header.entries = 3;
    response.table = {{0x1000, 1, 0xfffffff8}, {0x1000, 2, 0xfffffff8}, {0x1000, 3, 0xfffffff8}};
    peer_.Send(response.Encode(), ends_rkey);
    ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
    EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(call.ends, 1);
    world_.Pass(absl::Milliseconds(2));  // The client releases it.
  }
  void ExpectOk(PendingCall& call) {
    ASSERT_TRUE(world_.RunUntil([&] { return call.done(); }));
    EXPECT_THAT(call.status(), IsOk());
    EXPECT_EQ(call.ends, 1);
  }
  // The connection goes on, and all memory is back.
  void ExpectOpen() {
    ExpectNothingHeld();
    for (int i = 0; i < 3; ++i) {
      PendingCall call;
      const uint32_t rkey = Call(call);
      Answer(call, rkey);
      ExpectOk(call);
    }
    ExpectNothingHeld();
    EXPECT_EQ(observer_.closings, 0);
  }
  // No call's grant is by the window of `rkey`. Two at once, since a window that is free again is the next
  // one to be bound.
  void ExpectWindowIsNotBound(uint32_t rkey) {
    for (int i = 0; i < 20; ++i) {
      PendingCall one, two;
      const uint32_t first = Call(one), second = Call(two);
      EXPECT_NE(first >> 8, rkey >> 8) << "its window is bound to other memory";
      EXPECT_NE(second >> 8, rkey >> 8) << "its window is bound to other memory";
      Answer(one, i % 2 == 0 ? first : 0);
      Answer(two, second);
      ExpectOk(one);
      ExpectOk(two);
      world_.Settle();
    }
  }
  void ExpectClosed() {
    ASSERT_TRUE(world_.RunUntil([&] { return observer_.closings == 1 && peer_.ended(); }));
    EXPECT_THAT(*observer_.closed, HasCode(absl::StatusCode::kUnavailable));
    ExpectNothingHeld();
  }
  // No request's memory: what the client has besides is for the receives of four slots.
  void ExpectNothingHeld() {
    world_.Settle();
    EXPECT_EQ(world_.client.fabric->counts(0).grants, 0);
    EXPECT_LT(World::LeasedBytes(world_.client), kLarge);
  }

  World world_{{}, {}, Sides(GrantKind::kWindows)};
  HostilePeer peer_{world_, 16, NewFabric(GrantKind::kWindows)};
  RecordingObserver observer_;
  Connection* victim_ = nullptr;
  TableEntry granted_;  // By the last Call().
};

TEST_F(HostileEndingTest, APeerThatEndsNothingCostsOnlyItsOwnAdvantage) {
  Connect();
  PendingCall call;
  Call(call);
  Answer(call);
  ExpectOk(call);
  ExpectOpen();
}

TEST_F(HostileEndingTest, WithoutAnAgreementTheDevicesWordIsEnough) {
  Connect(/*features=*/0);
  PendingCall call;
  const uint32_t rkey = Call(call);
  Answer(call, rkey);
  ExpectOk(call);
  ExpectOpen();
}

TEST_F(HostileEndingTest, AKeyThatWasNotGrantedEndsTheConnection) {
  Connect();
  PendingCall call;
  const uint32_t rkey = Call(call);
  Answer(call, rkey ^ 0x10000);
  ExpectClosed();
  EXPECT_THAT(call.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(call.ends, 1);
}

TEST_F(HostileEndingTest, TheSameKeyTwiceEndsTheConnection) {
  Connect();
  PendingCall call, other;
  const uint32_t rkey = Call(call);
  Call(other);
  Answer(call, rkey);
  Answer(other, rkey);
  ExpectClosed();
  EXPECT_THAT(other.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(call.ends + other.ends, 2);
}

TEST_F(HostileEndingTest, AKeyThatIsRevokedEndsTheConnection) {
  Connect();
  PendingCall call, other;
  const uint32_t rkey = Call(call);
  Answer(call);
  ExpectOk(call);
  world_.Settle();
  Call(other);
  Answer(other, rkey);
  ExpectClosed();
  EXPECT_EQ(other.ends, 1);
}

// It takes from the peer what it could READ, and nothing from the client: each request keeps its memory until
// its own response.
TEST_F(HostileEndingTest, TheGrantOfAnotherCallEndsEarlyAndItsMemoryIsKept) {
  Connect();
  PendingCall call, other;
  Call(call);
  const uint32_t rkey = Call(other);
  Answer(call, rkey);
  ExpectOk(call);
  world_.Settle();
  EXPECT_FALSE(other.done());
  EXPECT_GE(World::LeasedBytes(world_.client), kLarge) << "of the call that is still under way";
  ExpectWindowIsNotBound(rkey);
  Answer(other);
  ExpectOk(other);
  ExpectOpen();
}

TEST_F(HostileEndingTest, AKeyEndedEarlyThatThePeerReadsEndsTheConnection) {
  Connect();
  PendingCall call, other;
  Call(call);
  const uint32_t rkey = Call(other);
  Answer(call, rkey);
  ExpectOk(call);
  peer_.Read({0x1000, rkey, 64});
  ExpectClosed();
  EXPECT_EQ(other.ends, 1);
}

// ---- Responses that the client does not take

TEST_F(HostileEndingTest, ResponseThatIsRefusedLeavesTheGrantsOfOtherCalls) {
  Connect();
  PendingCall call, other;
  const uint32_t rkey = Call(call);
  Call(other);
  AnswerWithTooMuch(call, rkey);
  EXPECT_FALSE(other.done());
  EXPECT_EQ(world_.client.fabric->counts(0).grants, 1);
  peer_.Read(granted_);
  world_.Settle();
  EXPECT_THAT(std::string(reinterpret_cast<const char*>(peer_.readable()), granted_.length_bytes),
              testing::HasSubstr(ContentOf(kLarge).substr(0, 1000)));
  Answer(other, granted_.rkey);
  ExpectOk(other);
  ExpectOpen();
}

// As if it were not refused: the peer loses its own access, and the other call keeps its memory.
TEST_F(HostileEndingTest, ResponseThatIsRefusedAndEndsTheGrantOfAnotherCallFreesNoMemoryOfIt) {
  Connect();
  PendingCall call, other;
  Call(call);
  const uint32_t rkey = Call(other);
  AnswerWithTooMuch(call, rkey);
  EXPECT_FALSE(other.done());
  EXPECT_GE(World::LeasedBytes(world_.client), kLarge) << "of the call that is still under way";
  ExpectWindowIsNotBound(rkey);
  Answer(other);
  ExpectOk(other);
  ExpectOpen();
}

// What is no response of the call.
struct Malformed {
  const char* name;
  std::string (*encode)(ExchangeId id);
};

class MalformedEndingTest : public HostileEndingTest, public testing::WithParamInterface<Malformed> {};

TEST_P(MalformedEndingTest, ItClosesTheConnectionWhicheverGrantItEnds) {
  Connect();
  PendingCall call, other;
  Call(call);
  const uint32_t rkey = Call(other);
  peer_.Send(GetParam().encode(call.id), rkey);
  ASSERT_TRUE(world_.RunUntil([&] { return observer_.closings == 1 && peer_.ended(); }));
  for (PendingCall* each : {&call, &other}) {
    EXPECT_FALSE(each->status().ok());
    EXPECT_EQ(each->ends, 1);
  }
  ExpectNothingHeld();
}

INSTANTIATE_TEST_SUITE_P(
    Responses, MalformedEndingTest,
    testing::ValuesIn(std::vector<Malformed>{
        {"OfAnEarlierExchange",
         [](ExchangeId id) { return RawResponse(id.slot, id.generation - 1).Encode(); }},
        {"OfAFreeSlot",
         [](ExchangeId id) { return RawResponse(static_cast<uint16_t>(id.slot + 2), 1).Encode(); }},
        {"OfNoSlot", [](ExchangeId id) { return RawResponse(0xffff, id.generation).Encode(); }},
        {"ThatIsARequest", [](ExchangeId id) { return RawRequest(id.slot, id.generation).Encode(); }},
        {"CutShort", [](ExchangeId id) { return RawResponse(id.slot, id.generation).Encode().substr(0, 8); }},
        {"Garbage", [](ExchangeId) { return std::string(64, '\xff'); }},
    }),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace hawser::transport
