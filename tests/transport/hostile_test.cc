// Whatever a peer says, it ends its own connection at most, with a reason that names it and what was wrong.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/hostile_peer.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

// A hostile peer, whom it attacks, and honest ones beside it that must not notice.
class HostileTest : public ::testing::Test {
 protected:
  HostileTest() { honest_.EchoAll(); }

  ~HostileTest() override {
    if (victim != nullptr && observer.closings == 0) {
      World::On(*side_, [&] { victim->Close(); });
      EXPECT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
    }
    EXPECT_TRUE(IsSkipped() || observer.closings == 1);
    server.requests.clear();
    PendingCall call;
    honest_.Call(call, NewMessage(world.client.messages(), kMiB));
    EXPECT_TRUE(call.response.ok()) << "another connection was hit: " << call.status();
    world.Pass(absl::Milliseconds(2));
    EXPECT_EQ(world.client.poller().connection_count() + world.server.poller().connection_count(), 2u);
    EXPECT_EQ(world.server.poller().read_budget().taken_bytes(), 0u);
  }

  // The peer sends requests, or should; the victim answers them.
  void AttackServer(const ConnectionOptions& options = {}) {
    side_ = &world.server;
    listener_.on_peer = [&](std::unique_ptr<fabric::ConnectRequest> request, const Handshake& hello) {
      absl::StatusOr<Connection*> accepted =
          Connection::Accept(world.server.poller(), std::move(request), options, hello,
                             NewSessionToken(Environment::Real()), observer, &server);
      ASSERT_TRUE(accepted.ok()) << accepted.status();
      victim = *accepted;
    };
    peer.Dial(listener_.address(), Encode(HostilePeer::Hello()));
    ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value() && peer.established(); }));
  }

  // The victim sends requests; the peer answers, or should.
  void AttackClient(const ConnectionOptions& options = {}) {
    side_ = &world.client;
    const fabric::SocketAddress address = peer.Listen(Encode(HostilePeer::Hello()));
    world.OnClient([&] {
      absl::StatusOr<Connection*> dialed = Connection::Dial(world.client.poller(), address, options,
                                                            Handshake(), absl::Seconds(5), observer, nullptr);
      ASSERT_TRUE(dialed.ok()) << dialed.status();
      victim = *dialed;
    });
    ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value() && peer.established(); }));
  }

  void SendRequest(PendingCall& call, size_t body_bytes = 8, int64_t deadline_ns = kNever) {
    const size_t before = peer.received().size();
    world.OnClient([&] {
      OutgoingMessagePtr request = NewMessage(world.client.messages(), body_bytes);
      absl::StatusOr<ExchangeId> sent = victim->SendRequest(request, deadline_ns, call);
      ASSERT_TRUE(sent.ok()) << sent.status();
      call.id = *sent;
    });
    ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() > before; }));
  }

  void Respond(ExchangeId id) {
    world.OnServer([&] {
      OutgoingMessagePtr response = NewMessage(world.server.messages(), 8);
      EXPECT_TRUE(victim->Respond(id, response).ok());
    });
  }

  // The connection has ended for this reason, which names the peer; the other side has noticed.
  void ExpectClosed(absl::StatusCode code, const std::string& what) {
    ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; })) << "it goes on";
    EXPECT_EQ(observer.closed->code(), code) << *observer.closed;
    EXPECT_THAT(Text(*observer.closed), HasSubstr(what));
    EXPECT_THAT(Text(*observer.closed), HasSubstr(TestScheme() + "://"));
    EXPECT_TRUE(world.RunUntil([&] { return peer.ended(); }));
  }
  void ExpectDataLoss(const std::string& what) { ExpectClosed(absl::StatusCode::kDataLoss, what); }

  void ExpectOpen() {
    world.Settle();
    EXPECT_EQ(observer.closings, 0) << *observer.closed;
  }

  World world;
  HostilePeer peer{world};
  RecordingObserver observer;
  RecordingServer server;
  Connection* victim = nullptr;

 private:
  Link honest_{world};
  TestListener listener_{world, world.server};
  World::Side* side_ = nullptr;
};

// ---- Requests.

TEST_F(HostileTest, AnHonestRequestIsAnsweredFirstOfAll) {
  AttackServer();
  peer.Send(RawRequest(0, 1, 8).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return !server.requests.empty(); }));
  Respond(server.requests[0].id);
  ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() == 1; }));
  EXPECT_EQ(peer.received()[0], RawResponse(0, 1, 8).Encode());
}

TEST_F(HostileTest, ASlotBeyondTheAgreedOnesClosesTheConnection) {
  AttackServer();
  peer.Send(RawRequest(4, 1).Encode());
  ExpectDataLoss("used slot 4 of 4");
}

TEST_F(HostileTest, TheLastSlotOfTheWireIsNotOurs) {
  AttackServer();
  peer.Send(RawRequest(kControlSlot, 1).Encode());
  ExpectDataLoss("used slot 65535 of 4");
}

TEST_F(HostileTest, ARequestInABusySlotClosesTheConnectionAndTheHandlerHears) {
  AttackServer();
  peer.Send(RawRequest(2, 1).Encode());
  peer.Send(RawRequest(2, 2).Encode());
  ExpectDataLoss("slot 2, which is busy");
  ASSERT_EQ(server.cancelled.size(), 1u);
  EXPECT_CODE(server.cancelled[0].second, kUnavailable);
}

TEST_F(HostileTest, AGenerationThatIsNotTheNextClosesTheConnection) {
  AttackServer();
  peer.Send(RawRequest(1, 2).Encode());
  ExpectDataLoss("generation 2 of slot 1, expected was 1");
  EXPECT_EQ(server.request_count, 0u);
}

TEST_F(HostileTest, ARepeatedGenerationClosesTheConnection) {
  AttackServer();
  peer.Send(RawRequest(1, 1).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 1; }));
  Respond(server.requests[0].id);
  peer.Send(RawRequest(1, 1).Encode());
  ExpectDataLoss("generation 1 of slot 1, expected was 2");
}

TEST_F(HostileTest, AResponseToASideThatAnswersClosesTheConnection) {
  AttackServer();
  peer.Send(RawResponse(0, 1).Encode());
  ExpectDataLoss("sent a response on a connection where it gets them");
}

TEST_F(HostileTest, WhatIsMalformedClosesTheConnectionWithTheValues) {
  AttackServer();
  RawMessage message = RawRequest(0, 1, 8);
  message.inline_bytes += "behind..";
  peer.Send(message.Encode());
  ExpectDataLoss("16 bytes of inline segments, but its table announces 8");
}

TEST_F(HostileTest, OneByteClosesTheConnection) {
  AttackServer();
  peer.Send("x");
  ExpectDataLoss("1 bytes, shorter than the header");
}

TEST_F(HostileTest, MoreSegmentsThanAllowedCloseTheConnection) {
  AttackServer();
  RawMessage message = RawRequest(0, 1);
  message.table.assign(121, {});
  message.header.entries = 121;
  peer.Send(message.Encode());
  ExpectDataLoss("121 segments");
}

TEST_F(HostileTest, AMessageLongerThanTheReceiveBufferClosesTheConnection) {
  AttackServer({.receive_buffer_bytes = 512});
  peer.Send(RawRequest(0, 1, 2000).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_FALSE(observer.closed->ok());
}

TEST_F(HostileTest, RequestsThatDoNotWaitForAcknowledgedAnswersAreBoundedByTheSendQueue) {
  AttackServer();
  server.answer = [&](RecordingServer::Request request) { Respond(request.id); };
  world.server.fabric->KeepBackSendCompletions(true);
  const size_t before = World::LeasedBytes(world.server);
  uint32_t generation = 0;
  while (observer.closings == 0 && generation < 1000) {
    peer.Send(RawRequest(0, ++generation, 8).Encode());
    world.Turn();
  }
  world.server.fabric->KeepBackSendCompletions(false);
  ExpectClosed(absl::StatusCode::kUnavailable, "never acknowledged");
  EXPECT_LT(generation, 200u);
  EXPECT_LE(World::LeasedBytes(world.server), before);
}

// ---- Descriptors.

class DescriptorTest : public HostileTest {
 protected:
  // A request of slot 3 whose only segment is to be READ.
  static std::string RequestOf(std::vector<TableEntry> table) {
    RawMessage message = RawRequest(3, 1);
    message.header.entries = static_cast<uint16_t>(table.size());
    message.table = std::move(table);
    return message.Encode();
  }
  void ExpectReadRefused() {
    ExpectClosed(absl::StatusCode::kUnavailable, "for slot 3 failed: " + RefusedRead());
    EXPECT_EQ(server.request_count, 0u);
  }
};

TEST_F(DescriptorTest, WhatWasGrantedIsRead) {
  AttackServer();
  peer.Send(RequestOf({peer.Grant(kMiB)}));
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 1; }));
  EXPECT_EQ(server.requests[0].message->body_bytes(), kMiB);
}

TEST_F(DescriptorTest, AnRkeyThatNobodyGrantedEndsTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.rkey += 1 << 16;
  peer.Send(RequestOf({entry}));
  ExpectReadRefused();
}

TEST_F(DescriptorTest, AnAddressBelowOrBeyondWhatWasGrantedEndsTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.address -= 8;
  peer.Send(RequestOf({entry}));
  ExpectReadRefused();
}

TEST_F(DescriptorTest, ALengthBeyondWhatWasGrantedEndsTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.length_bytes += 8;
  peer.Send(RequestOf({entry}));
  ExpectReadRefused();
}

TEST_F(DescriptorTest, AnAddressAtTheEndOfTheAddressSpaceEndsTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.address = ~uint64_t{7};
  entry.length_bytes = kMiB;
  peer.Send(RequestOf({entry}));
  ExpectReadRefused();
}

TEST_F(DescriptorTest, AResponseWithAForeignRkeyEndsTheConnectionAndItsCalls) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  RawMessage response = RawResponse(0, 1);
  response.header.entries = 1;
  response.table = {{0x1000, 0x12345, 4096}};
  peer.Send(response.Encode());
  ExpectClosed(absl::StatusCode::kUnavailable, "for slot 0 failed: " + RefusedRead());
  EXPECT_CODE(call.status(), kUnavailable);
  EXPECT_EQ(call.ends, 1);
}

TEST_F(DescriptorTest, ASegmentOfNoBytesOrOfABrokenWordClosesTheConnection) {
  AttackServer();
  TableEntry entry = peer.Grant(4096);
  entry.length_bytes = 0;
  peer.Send(RequestOf({entry}));
  ExpectDataLoss("length 0");
}

// Three segments of almost 4 GiB: more than any counter of 32 bits holds.
std::vector<TableEntry> TwelveGiB() {
  return {{0x1000, 1, 0xfffffff8}, {0x1000, 2, 0xfffffff8}, {0x1000, 3, 0xfffffff8}};
}

TEST_F(DescriptorTest, ARequestLargerThanTheLimitIsRefusedBeforeAnythingIsAllocatedOrRead) {
  AttackServer({.message_bytes_max = 16 * kMiB});
  const BufferPoolStats before = world.server.buffers().stats();
  peer.Send(RequestOf(TwelveGiB()));
  ASSERT_TRUE(world.RunUntil([&] { return server.bad_requests.size() == 1; }));
  EXPECT_CODE(server.bad_requests[0].second, kInvalidArgument);
  EXPECT_THAT(Text(server.bad_requests[0].second), HasSubstr("12884901864 bytes"));
  const BufferPoolStats after = world.server.buffers().stats();
  EXPECT_EQ(after.mapped_bytes, before.mapped_bytes);
  EXPECT_EQ(world.server.fabric->counts(world.server.fabric->queue_pairs() - 1).reads, 0u);
  // The peer is told, and may go on.
  Respond(server.bad_requests[0].first);
  ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() == 1; }));
  ExpectOpen();
}

TEST_F(DescriptorTest, AResponseLargerThanTheLimitIsRefusedBeforeAnythingIsAllocatedOrRead) {
  AttackClient({.message_bytes_max = 16 * kMiB});
  PendingCall call;
  SendRequest(call);
  const BufferPoolStats before = world.client.buffers().stats();
  RawMessage response = RawResponse(0, 1);
  response.header.entries = 3;
  response.table = TwelveGiB();
  peer.Send(response.Encode());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_CODE(call.status(), kResourceExhausted);
  EXPECT_THAT(Text(call.status()), HasSubstr("12884901864 bytes"));
  EXPECT_EQ(world.client.buffers().stats().mapped_bytes, before.mapped_bytes);
  ExpectOpen();
  // It is released like any other.
  const size_t received = peer.received().size();
  world.Pass(absl::Milliseconds(2));
  EXPECT_EQ(peer.received().size(), received + 1);
  EXPECT_EQ(peer.received().back(), RawControl(1, {{ControlOp::Code::kRelease, 0, 1}}));
}

TEST_F(DescriptorTest, ASessionCutInTheMiddleOfAMessageLeavesNothing) {
  AttackServer();
  const size_t before = World::LeasedBytes(world.server);
  peer.Send(RequestOf({peer.Grant(16 * kMiB)}));  // More than is READ at once.
  ASSERT_TRUE(world.RunUntil(
      [&] { return world.server.fabric->counts(world.server.fabric->queue_pairs() - 1).reads > 0; }));
  peer.Disconnect();
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_CODE(*observer.closed, kUnavailable);
  EXPECT_EQ(server.request_count, 0u);
  EXPECT_LE(World::LeasedBytes(world.server), before);
}

// ---- Responses.

TEST_F(HostileTest, AResponseThatNobodyAskedForClosesTheConnection) {
  AttackClient();
  peer.Send(RawResponse(0, 1).Encode());
  ExpectDataLoss("answered exchange 1 of slot 0, which is not waiting");
}

TEST_F(HostileTest, AResponseInASlotThatIsNoneClosesTheConnection) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  peer.Send(RawResponse(77, 1).Encode());
  ExpectDataLoss("exchange 1 of slot 77");
  EXPECT_CODE(call.status(), kUnavailable);
}

TEST_F(HostileTest, AResponseToAFinishedExchangeClosesTheConnection) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  peer.Send(RawResponse(0, 1).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
  EXPECT_TRUE(call.response.ok());
  peer.Send(RawResponse(0, 1).Encode());
  ExpectDataLoss("exchange 1 of slot 0");
  EXPECT_EQ(call.ends, 1);
}

TEST_F(HostileTest, AResponseOfAnotherGenerationClosesTheConnection) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  peer.Send(RawResponse(0, 2).Encode());
  ExpectDataLoss("exchange 2 of slot 0");
}

TEST_F(HostileTest, ASecondResponseWhileTheFirstIsReadClosesTheConnection) {
  AttackClient();
  PendingCall call;
  SendRequest(call);
  RawMessage response = RawResponse(0, 1);
  response.header.entries = 1;
  response.table = {peer.Grant(4 * kMiB)};
  peer.Send(response.Encode());
  peer.Send(response.Encode());
  ExpectDataLoss("exchange 1 of slot 0");
  EXPECT_EQ(call.ends, 1);
}

TEST_F(HostileTest, ARequestToASideThatSendsThemClosesTheConnection) {
  AttackClient();
  peer.Send(RawRequest(0, 1).Encode());
  ExpectDataLoss("sent a request on a connection where it answers them");
}

// ---- Control.

TEST_F(HostileTest, AControlGenerationThatIsNotTheNextClosesTheConnection) {
  AttackServer();
  peer.Send(RawControl(2, {{ControlOp::Code::kPing}}));
  ExpectDataLoss("control request 2, expected was 1");
}

TEST_F(HostileTest, AnAnswerToNoControlRequestClosesTheConnection) {
  AttackServer();
  peer.Send(RawControlAck(1));
  ExpectDataLoss("answered control request 1, which was not under way");
}

class UnknownOperationTest : public HostileTest, public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Codes, UnknownOperationTest, ::testing::Values(0, 5, 255));

TEST_P(UnknownOperationTest, ClosesTheConnection) {
  AttackServer();
  peer.Send(RawControl(1, {{static_cast<ControlOp::Code>(GetParam())}}));
  ExpectDataLoss("control operation " + std::to_string(GetParam()));
}

TEST_F(HostileTest, AControlOperationForASlotThatIsNoneClosesTheConnection) {
  AttackServer();
  peer.Send(RawControl(1, {{ControlOp::Code::kCancel, 4, 1}}));
  ExpectDataLoss("named slot 4 of 4");
}

TEST_F(HostileTest, ControlOperationsOfTheWrongDirectionCloseTheConnection) {
  AttackServer();
  peer.Send(RawControl(1, {{ControlOp::Code::kGoingAway}}));
  ExpectDataLoss("control operation 4, which this side does not take");
}

TEST_F(HostileTest, ACancellationToASideThatSendsRequestsClosesTheConnection) {
  AttackClient();
  peer.Send(RawControl(1, {{ControlOp::Code::kCancel, 0, 0}}));
  ExpectDataLoss("control operation 2, which this side does not take");
}

TEST_F(HostileTest, CancellationsAndReleasesOfWhateverIsNotUnderWayAreLateAndIgnored) {
  AttackServer();
  peer.Send(RawRequest(0, 1).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 1; }));
  peer.Send(RawControl(1, {{ControlOp::Code::kCancel, 0, 0},
                           {ControlOp::Code::kCancel, 0, 2},
                           {ControlOp::Code::kCancel, 1, 0},
                           {ControlOp::Code::kRelease, 0, 1},  // It has no answer yet.
                           {ControlOp::Code::kRelease, 2, 0}}));
  ASSERT_TRUE(world.RunUntil([&] { return peer.received().size() == 1; }));
  EXPECT_EQ(peer.received()[0], RawControlAck(1));
  EXPECT_TRUE(server.cancelled.empty());
  ExpectOpen();
}

TEST_F(HostileTest, AFloodOfControlRequestsIsAnsweredInBoundedMemory) {
  AttackServer();
  world.Settle();
  const size_t before = World::LeasedBytes(world.server);
  for (uint32_t generation = 1; generation <= 2000 && observer.closings == 0; ++generation) {
    peer.Send(RawControl(generation, std::vector<ControlOp>(32, {ControlOp::Code::kPing})));
    if (generation % 50 == 0) world.Turn();
  }
  world.Settle();
  EXPECT_LE(World::LeasedBytes(world.server), before + 16 * 4096);
}

TEST_F(HostileTest, TheSameResponseMemoryIsNotReadableAfterItsRelease) {
  AttackServer();
  peer.Send(RawRequest(0, 1, 8).Encode());
  ASSERT_TRUE(world.RunUntil([&] { return server.request_count == 1; }));
  world.OnServer([&] {
    OutgoingMessagePtr response = NewMessage(world.server.messages(), kMiB);
    EXPECT_TRUE(victim->Respond(server.requests[0].id, response).ok());
  });
  SpyFabric::Counts& counts = world.server.fabric->counts(world.server.fabric->queue_pairs() - 1);
  EXPECT_EQ(counts.grants, 1);
  peer.Send(RawControl(1, {{ControlOp::Code::kRelease, 0, 1}}));
  ASSERT_TRUE(world.RunUntil([&] { return counts.grants == 0; }));
}

// ---- Silence, and nobody home.

TEST_F(HostileTest, APeerThatPostsNoReceivesIsRnrAndLosesTheConnection) {
  AttackClient();
  peer.StopReceiving();
  // Two hundred answers that it does not wait for, and never takes.
  PendingCall calls[200];
  int sent = 0;
  for (PendingCall& call : calls) {
    world.OnClient([&] {
      OutgoingMessagePtr request = NewMessage(world.client.messages(), 8);
      absl::StatusOr<ExchangeId> id = victim->SendRequest(request, kNever, call);
      if (!id.ok()) return;
      ++sent;
      peer.Send(RawResponse(id->slot, id->generation).Encode());
    });
    world.Settle();
    if (observer.closings != 0) break;
  }
  ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
  EXPECT_CODE(*observer.closed, kUnavailable);
  EXPECT_GT(sent, 100);
}

// ---- Chance. Bytes that are nearly right find what nobody thought of; sanitizers say what.

TEST(HostileChanceTest, RandomMessagesHarmNobodyElse) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    World world;
    Link honest(world);
    honest.EchoAll();
    uint32_t state = seed * 2654435761u;
    const auto random = [&](uint32_t below) {
      state = state * 1664525u + 1013904223u;
      return (state >> 8) % below;
    };
    const bool attack_server = random(2) == 0;
    RecordingObserver observer;
    RecordingServer server;
    HostilePeer peer(world);
    Connection* victim = nullptr;
    TestListener listener(world, world.server);
    listener.on_peer = [&](std::unique_ptr<fabric::ConnectRequest> request, const Handshake& hello) {
      victim = *Connection::Accept(world.server.poller(), std::move(request), {.message_bytes_max = 8 * kMiB},
                                   hello, NewSessionToken(Environment::Real()), observer,
                                   attack_server ? &server : nullptr);
    };
    server.answer = [&](RecordingServer::Request request) {
      if (random(4) == 0) return server.requests.push_back(std::move(request));
      OutgoingMessagePtr response = NewMessage(world.server.messages(), random(3) == 0 ? 100'000 : 80);
      victim->Respond(request.id, response).IgnoreError();
    };
    server.on_bad_request = [&](ExchangeId id) {
      OutgoingMessagePtr response = NewMessage(world.server.messages(), 8);
      victim->Respond(id, response).IgnoreError();
    };
    peer.Dial(listener.address(),
              Encode(HostilePeer::Hello(attack_server ? Role::kForward : Role::kReverse)));
    ASSERT_TRUE(world.RunUntil([&] { return observer.ready.has_value() && peer.established(); }));
    std::vector<std::unique_ptr<PendingCall>> calls;
    uint32_t generations[4] = {}, control = 0;
    const TableEntry grant = peer.Grant(2 * kMiB);
    for (int step = 0; step < 300 && observer.closings == 0; ++step) {
      if (!attack_server && random(2) == 0) {
        calls.push_back(std::make_unique<PendingCall>());
        world.OnServer([&] {
          OutgoingMessagePtr request = NewMessage(world.server.messages(), random(3) == 0 ? 100'000 : 80);
          victim
              ->SendRequest(request, After(world.clock.NowNs(), absl::Milliseconds(random(20))),
                            *calls.back())
              .status()
              .IgnoreError();
        });
      }
      const uint16_t slot = static_cast<uint16_t>(random(4));
      RawMessage message = attack_server ? RawRequest(slot, ++generations[slot], 8 * random(10))
                                         : RawResponse(slot, 1 + random(4), 8 * random(10));
      switch (random(10)) {
        case 0:
          message.table.push_back({grant.address, grant.rkey, 8 * (1 + random(kMiB / 4))});
          ++message.header.entries;
          break;
        case 1:
          peer.Send(RawControl(++control, {{ControlOp::Code::kCancel, slot, generations[slot]},
                                           {ControlOp::Code::kRelease, slot, generations[slot] - 1}}));
          break;
        default:
          break;
      }
      std::string bytes = message.Encode();
      if (random(50) == 0)
        bytes[random(static_cast<uint32_t>(bytes.size()))] ^= static_cast<char>(1 << random(8));
      if (random(100) == 0) bytes.resize(1 + random(static_cast<uint32_t>(bytes.size())));
      peer.Send(bytes);
      for (uint32_t turns = random(4); turns > 0; --turns) world.Turn();
      if (random(10) == 0) world.clock.Advance(absl::Milliseconds(1));
    }
    if (observer.closings == 0) world.OnServer([&] { victim->Close(); });
    ASSERT_TRUE(world.RunUntil([&] { return observer.closings == 1; }));
    for (const auto& call : calls) EXPECT_LE(call->ends, 1);
    PendingCall call;
    honest.Call(call, NewMessage(world.client.messages(), kMiB));
    EXPECT_TRUE(call.response.ok());
    EXPECT_EQ(world.server.poller().read_budget().taken_bytes(), 0u);
  }
}

}  // namespace
}  // namespace hawser::transport
