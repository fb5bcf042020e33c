// If a program misuses a call, a server or memory that it shares, the process ends, and names the mistake:
// see docs/guide.md, "What ends the process".

#include <capnp/message.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/synchronization/notification.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/first_of.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

class MisuseDeathTest : public testing::Test {
 protected:
  MisuseDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  TestServer server_;
  std::shared_ptr<Channel> channel_ = server_.Connect();
};

constexpr char kSent[] =
    "request\\(\\), Attach\\(\\), ReceiveInto\\(\\), SetSpanAttribute\\(\\) or Send\\(\\) on a Call that "
    "was sent, or moved from.*Probe.act";
constexpr char kTaken[] = "twice on one PendingCall.*Probe.act";

TEST_F(MisuseDeathTest, ACallIsSentOnce) {
  auto call = probe::ProbeStub(channel_).Act();
  auto pending = call.Send();
  EXPECT_DEATH((void)call.Send(), kSent);
  EXPECT_DEATH(call.Attach(Buffer()), kSent);
  EXPECT_DEATH(call.request(), kSent);
  EXPECT_DEATH(call.SetSpanAttribute("key", 1), kSent);
  EXPECT_DEATH(call.ReceiveInto({}), kSent);
}

TEST_F(MisuseDeathTest, ACallThatWasMovedFromIsNotSent) {
  auto call = probe::ProbeStub(channel_).Act();
  auto moved = std::move(call);
  EXPECT_DEATH((void)call.Send(), kSent);
}

TEST_F(MisuseDeathTest, AResultIsTakenOnce) {
  auto pending = SendAct(channel_, 1);
  EXPECT_THAT(pending.Wait(), IsOk());
  EXPECT_DEATH((void)pending.Wait(), kTaken);
  EXPECT_DEATH(pending.Then([](auto) {}), kTaken);
}

// All that a Reply has is the reply, which is elsewhere then.
void ExpectToBeEmpty(Reply<probe::Probe::ActResults>& reply) {
  constexpr char kEmpty[] = "a Reply was used that was moved from, or whose memory Keep\\(\\) has taken";
  EXPECT_DEATH(reply->getNumber(), kEmpty);
  EXPECT_DEATH((*reply).getNumber(), kEmpty);
  EXPECT_DEATH((void)reply.metadata(), kEmpty);
  EXPECT_DEATH((void)reply.landed(), kEmpty);
  EXPECT_DEATH((void)reply.Land({}), kEmpty);
  EXPECT_DEATH((void)reply.Read([](probe::Probe::ActResults::Reader) {}), kEmpty);
  EXPECT_DEATH((void)reply.memory_bytes(), kEmpty);
  EXPECT_DEATH((void)std::move(reply).Keep(), kEmpty);
}

TEST_F(MisuseDeathTest, AReplyThatWasMovedFromHasNothing) {
  absl::StatusOr<Reply<probe::Probe::ActResults>> reply = SendAct(channel_, 7).Wait();
  ASSERT_THAT(reply, IsOk());
  Reply<probe::Probe::ActResults> moved = *std::move(reply);
  ExpectToBeEmpty(*reply);
  *reply = std::move(moved);
  EXPECT_EQ((*reply)->getNumber(), 7u);
  ExpectToBeEmpty(moved);
}

TEST_F(MisuseDeathTest, AReplyWhoseMemoryIsKeptHasNothing) {
  absl::StatusOr<Reply<probe::Probe::ActResults>> reply = SendAct(channel_, 7).Wait();
  ASSERT_THAT(reply, IsOk());
  const probe::Probe::ActResults::Reader results = **reply;
  const std::shared_ptr<const void> kept = std::move(*reply).Keep();
  EXPECT_EQ(results.getNumber(), 7u);
  ExpectToBeEmpty(*reply);
}

TEST_F(MisuseDeathTest, AResultThatACallbackTakesIsNotWaitedFor) {
  auto pending = SendAct(channel_, 1);
  pending.Then([](auto) {});
  EXPECT_DEATH((void)pending.Wait(), kTaken);
}

TEST_F(MisuseDeathTest, APendingCallThatWasMovedFromIsNotWaitedFor) {
  auto pending = SendAct(channel_, 1);
  auto moved = std::move(pending);
  EXPECT_DEATH((void)pending.Wait(), "twice on one PendingCall, or on one that was moved from");
}

// On a poller the call could not end, and its memory may be written to until then.
TEST_F(MisuseDeathTest, ACallThatMayWriteToMemoryIsNotGivenUpOnAPoller) {
  server_.probe.on_act = server_.held.Handler();
  const absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  const auto send = [&] {
    auto call = probe::ProbeStub(channel_).Act();
    call.ReceiveInto({buffer->data(), buffer->size_bytes()});
    return call.Send();
  };
  auto waited_for = send();
  std::optional<PendingCall<probe::Probe::ActResults>> destroyed(send());
  const auto on_poller = [&](absl::AnyInvocable<void()> code) {
    absl::Notification done;
    probe::ProbeStub(channel_).Echo().Send().Then([&](const auto&) {
      code();
      done.Notify();
    });
    done.WaitForNotification();
  };
  constexpr char kWaits[] =
      "a call of .*Probe.act.*which has ReceiveInto\\(\\), was waited for, or destroyed, in";
  EXPECT_DEATH(on_poller([&] { (void)waited_for.Wait(); }), kWaits);
  EXPECT_DEATH(on_poller([&] { destroyed.reset(); }), kWaits);
  for (int i = 0; i < 2; ++i) server_.held.Take().Finish();
}

TEST_F(MisuseDeathTest, ACallThatMayWriteToMemoryIsNotOneOfSeveral) {
  const absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  auto call = probe::ProbeStub(channel_).Act();
  call.ReceiveInto({buffer->data(), buffer->size_bytes()});
  auto pending = call.Send();
  FirstOf<probe::Probe::ActResults> first;
  EXPECT_DEATH(first.Add(std::move(pending)),
               "FirstOf::Add\\(\\) with a call that has ReceiveInto.*Probe.act");
}

TEST_F(MisuseDeathTest, ADeferredCallThatIsFinishedHasNoContext) {
  server_.probe.on_act = server_.held.Handler();
  auto pending = SendAct(channel_, 1);
  DeferredCall call = server_.held.Take();
  call.Finish();
  EXPECT_FALSE(call);
  EXPECT_DEATH(call.context(), "a DeferredCall that was finished");
  call.Finish(absl::AbortedError("again"));  // Has no effect.
  EXPECT_THAT(pending.Wait(), IsOk());
}

TEST_F(MisuseDeathTest, ACallIsDeferredOnce) {
  server_.probe.on_act = [](ServerContext& context, uint64_t) {
    DeferredCall once = context.Defer();
    EXPECT_DEATH(context.Defer(), "Defer\\(\\) twice in one call of probe.capnp:Probe.act");
    once.Finish();
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(channel_, 1).Wait(), IsOk());
}

TEST_F(MisuseDeathTest, AServerIsNotAskedForItsSnapshotOnItsPoller) {
  server_.probe.on_act = [this](ServerContext&, uint64_t) {
    capnp::MallocMessageBuilder message;
    EXPECT_DEATH(server_.server.FillIn(message.initRoot<observe::wire::Snapshot>()),
                 "FillIn\\(\\) was called on a poller");
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(channel_, 1).Wait(), IsOk());
}

TEST_F(MisuseDeathTest, SharedMemoryOfTheProgramsOwnDoesNotEndOnAPoller) {
  std::array<uint8_t, 64> own = {};
  absl::StatusOr<SharedMemory> shared = server_.server.Share(absl::MakeSpan(own));
  ASSERT_THAT(shared.status(), IsOk());
  server_.probe.on_act = [&](ServerContext&, uint64_t) {
    EXPECT_DEATH({ const SharedMemory ends = *std::move(shared); }, "destroyed in a handler or a callback");
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(channel_, 1).Wait(), IsOk());
}

TEST_F(MisuseDeathTest, AResultOfARemoteOperationIsTakenOnce) {
  absl::StatusOr<SharedMemory> shared = server_.server.Share(64);
  ASSERT_THAT(shared.status(), IsOk());
  capnp::MallocMessageBuilder message;
  server_.probe.on_act = [&](ServerContext& context, uint64_t) {
    return context.Grant(*shared, {}, message.initRoot<memory::Ticket>());
  };
  ASSERT_THAT(SendAct(channel_, 1).Wait(), IsOk());
  RemoteMemory remote(channel_, message.getRoot<memory::Ticket>());
  std::array<uint8_t, 8> bytes = {};
  constexpr char kTwice[] = "the result of a RemoteOperation was taken twice";
  RemoteOperation waited = remote.Read(0, absl::MakeSpan(bytes));
  EXPECT_THAT(waited.Wait(), IsOk());
  EXPECT_DEATH((void)waited.Wait(), kTwice);
  EXPECT_DEATH(waited.Then([](const absl::Status&) {}), kTwice);
  RemoteOperation called = remote.Read(0, absl::MakeSpan(bytes));
  absl::Notification done;
  called.Then([&](const absl::Status&) { done.Notify(); });
  EXPECT_DEATH((void)called.Wait(), kTwice);
  done.WaitForNotification();
  waited.Cancel();  // Has no effect.
}

TEST(MisuseTest, NoServiceIsRefused) {
  Server server;
  EXPECT_THAT(server.AddService(nullptr), HasCode(absl::StatusCode::kInvalidArgument));
  TestServer there;
  EXPECT_THAT(Channel::Connect(there.uri, {.services = {nullptr}}).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace hawser
