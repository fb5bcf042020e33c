// If a program misuses a call, a server or memory that it shares, the process ends, and names the mistake:
// see docs/guide.md, "What ends the process".

#include <capnp/message.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/first_of.h"
#include "hawser/rpc/registered_memory.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

class MisuseDeathTest : public testing::Test {
 protected:
  MisuseDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // Runs it in a callback.
  void OnPoller(absl::AnyInvocable<void()> code) {
    absl::Notification done;
    probe::ProbeStub(channel_).Echo().Send().Then([&](const auto&) {
      code();
      done.Notify();
    });
    done.WaitForNotification();
  }
  // Memory of the server, which `ticket` names.
  absl::StatusOr<SharedMemory> ShareAndGrant(capnp::MessageBuilder& ticket) {
    absl::StatusOr<SharedMemory> shared = server_.server.Share(64);
    if (!shared.ok()) return shared;
    server_.probe.on_act = [&](ServerContext& context, uint64_t) {
      return context.Grant(*shared, {}, ticket.initRoot<memory::Ticket>());
    };
    const absl::Status granted = SendAct(channel_, 1).Wait().status();
    server_.probe.on_act = nullptr;
    if (!granted.ok()) return granted;
    return shared;
  }

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

TEST_F(MisuseDeathTest, AnExecutorRunsAHandlerOnce) {
  const auto run_twice = [] {
    TestServer server({.executor = [](absl::AnyInvocable<void()> handler) {
      handler();
      handler();
    }});
    SendAct(server.Connect(), 1).Wait().IgnoreError();
  };
  EXPECT_DEATH(run_twice(), "an executor ran a handler a second time");
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
  constexpr char kWaits[] =
      "a call of .*Probe.act.*which has ReceiveInto\\(\\), was waited for, or destroyed, in";
  EXPECT_DEATH(OnPoller([&] { (void)waited_for.Wait(); }), kWaits);
  EXPECT_DEATH(OnPoller([&] { destroyed.reset(); }), kWaits);
  for (int i = 0; i < 2; ++i) server_.held.Take().Finish();
}

// Whether the result is there depends on how soon the peer answers: a peer must not decide whether the
// process goes on, and the first run is to find the mistake.
TEST_F(MisuseDeathTest, ACallThatMayWriteToMemoryIsNotGivenUpOnAPollerThoughItHasEnded) {
  const absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  std::optional<PendingCall<probe::Probe::ActResults>> ended;
  absl::Notification refused;
  const auto send = [&] {
    auto call = probe::ProbeStub(channel_).Act({.timeout = absl::ZeroDuration()});
    call.ReceiveInto({buffer->data(), buffer->size_bytes()});
    return call.Send();
  };
  // The poller ends a call without time before it runs a callback that was asked for later.
  ended.emplace(send());
  send().Then([&](const auto&) { refused.Notify(); });
  refused.WaitForNotification();
  constexpr char kWaits[] =
      "a call of .*Probe.act.*which has ReceiveInto\\(\\), was waited for, or destroyed, in";
  EXPECT_DEATH(OnPoller([&] { (void)ended->Wait(); }), kWaits);
  EXPECT_DEATH(OnPoller([&] { ended.reset(); }), kWaits);
  // What has been taken is nothing to wait for.
  EXPECT_THAT(ended->Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  OnPoller([&] { ended.reset(); });
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

TEST_F(MisuseDeathTest, BytesAtANullPointerAreAMistake) {
  const capnp::Data::Reader nowhere(static_cast<const uint8_t*>(nullptr), 5), none;
  auto call = probe::ProbeStub(channel_).Act();
  EXPECT_DEATH(call.Attach(nowhere, nullptr), "Attach\\(\\) of 5 bytes at a null pointer");
  EXPECT_EQ(call.Attach(none, nullptr).getReader().size(), 0u);
  server_.probe.on_act = [&](ServerContext& context, uint64_t) {
    EXPECT_DEATH(context.Attach(nowhere, nullptr), "Attach\\(\\) of 5 bytes at a null pointer");
    EXPECT_DEATH(context.KeepBytes(nowhere), "KeepBytes\\(\\) of 5 bytes at a null pointer");
    EXPECT_EQ(context.Attach(none, nullptr).getReader().size(), 0u);
    EXPECT_EQ(context.KeepBytes(none).owner, nullptr);
    return absl::OkStatus();
  };
  EXPECT_THAT(call.Send().Wait(), IsOk());
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

// A NIC may use the memory until the operation has ended: under way, as one that was begun here, or ended.
TEST_F(MisuseDeathTest, AnOperationOnRegisteredMemoryIsNotGivenUpOnAPoller) {
  capnp::MallocMessageBuilder message;
  const absl::StatusOr<SharedMemory> shared = ShareAndGrant(message);
  ASSERT_THAT(shared.status(), IsOk());
  RemoteMemory remote(channel_, message.getRoot<memory::Ticket>());
  const absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  const absl::Span<uint8_t> into(buffer->data(), 64);
  std::optional<RemoteOperation> ended(remote.Read(0, into, {.timeout = absl::ZeroDuration()}));
  absl::Notification refused;
  remote.Read(0, into, {.timeout = absl::ZeroDuration()}).Then([&](const absl::Status&) {
    refused.Notify();
  });
  refused.WaitForNotification();
  constexpr char kWaits[] =
      "a RemoteOperation on registered memory was waited for, or destroyed, in a handler or a callback";
  EXPECT_DEATH(OnPoller([&] { (void)remote.Read(0, into).Wait(); }), kWaits);
  EXPECT_DEATH(OnPoller([&] { const RemoteOperation begun = remote.Read(0, into); }), kWaits);
  EXPECT_DEATH(OnPoller([&] { (void)ended->Wait(); }), kWaits);
  EXPECT_DEATH(OnPoller([&] { ended.reset(); }), kWaits);
  EXPECT_THAT(ended->Wait(), HasCode(absl::StatusCode::kDeadlineExceeded));
  // Other memory is copied: no device touches it once the operation is given up.
  std::array<uint8_t, 64> own = {};
  OnPoller([&] {
    ended.reset();
    EXPECT_THAT(remote.Read(0, absl::MakeSpan(own)).Wait(), HasCode(absl::StatusCode::kFailedPrecondition));
    const RemoteOperation dropped = remote.Read(0, absl::MakeSpan(own));
  });
}

TEST_F(MisuseDeathTest, ARegisteredMemoryDoesNotEndOnAPoller) {
  std::vector<uint8_t> own(4096), others(4096);
  absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data(), .length_bytes = own.size()});
  ASSERT_THAT(registered.status(), IsOk());
  absl::StatusOr<RegisteredMemory> other =
      channel_->Register({.address = others.data(), .length_bytes = others.size()});
  ASSERT_THAT(other.status(), IsOk());
  constexpr char kEnds[] = "a RegisteredMemory was destroyed in a handler or a callback";
  // Nothing uses it, and nothing ever has.
  EXPECT_DEATH(OnPoller([&] { const RegisteredMemory ends = *std::move(registered); }), kEnds);
  EXPECT_DEATH(OnPoller([&] { *registered = *std::move(other); }), kEnds);
  OnPoller([&] {
    EXPECT_THAT(registered->Release(), IsOk());
    *registered = *std::move(other);
    EXPECT_EQ(registered->data(), others.data());
    EXPECT_THAT(registered->Release(), IsOk());
    const RegisteredMemory ends = *std::move(registered);
  });
}

TEST_F(MisuseDeathTest, AResultOfARemoteOperationIsTakenOnce) {
  capnp::MallocMessageBuilder message;
  const absl::StatusOr<SharedMemory> shared = ShareAndGrant(message);
  ASSERT_THAT(shared.status(), IsOk());
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
