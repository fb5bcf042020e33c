// Calls of a stub whose channel is null. Whether ServerContext::peer() is null is up to the client, so the
// call ends with an error and the process goes on.

#include <capnp/schema.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "hawser/rpc/dynamic_call.h"
#include "hawser/rpc/log.h"
#include "hawser/rpc/task.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Notify = absl::StatusOr<Reply<probe::Listener::NotifyResults>>;

constexpr char kWhyNull[] =
    "calling probe.capnp:Listener.notify: the stub has no channel: ServerContext::peer() returned null in "
    "the handler of "
    "probe.capnp:Probe.act, because the client offers no services (ChannelOptions::services)";

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

class NullPeerTest : public testing::Test {
 protected:
  NullPeerTest() {
    SetLogSink([this](LogSeverity, absl::string_view line) { lines_.Put(std::string(line)); });
  }
  ~NullPeerTest() override { SetLogSink(nullptr); }

  // The status that a client without services gets.
  absl::Status Call() { return SendAct(channel_, 1).Wait().status(); }

  // The server serves on, and has told its log which client it was.
  void ExpectNoHarm() {
    server_.probe.on_act = [](ServerContext&, uint64_t) { return absl::OkStatus(); };
    EXPECT_THAT(Call(), IsOk());
    EXPECT_THAT(lines_.Take(), AllOf(HasSubstr("calling probe.capnp:Listener.notify at "), HasSubstr("://"),
                                     HasSubstr("ServerContext::peer() returned null")));
  }

  Box<std::string> lines_;
  TestServer server_;
  std::shared_ptr<Channel> channel_ = server_.Connect();
};

TEST_F(NullPeerTest, ACallBackToAClientWithoutServicesFails) {
  server_.probe.on_act = [](ServerContext& context, uint64_t) {
    auto deferred = std::make_shared<DeferredCall>(context.Defer());
    probe::ListenerStub(context.peer()).Notify().Send().Then([deferred](Notify reply) {
      EXPECT_FALSE(WasSent(reply.status()));
      deferred->Finish(reply.status());
    });
    return absl::OkStatus();
  };
  const absl::Status status = Call();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  // The caller reads what it lacks, but no address.
  EXPECT_THAT(TextOf(status), AllOf(HasSubstr(kWhyNull), Not(HasSubstr("://"))));
  ExpectNoHarm();
}

TEST_F(NullPeerTest, ACoroutineGetsTheError) {
  const auto later = [](DeferredCall call) -> Task {
    auto notify = probe::ListenerStub(call.context().peer()).Notify(CallOptions::For(call.context()));
    const Notify reply = co_await notify.Send();
    co_return reply.status();
  };
  server_.probe.on_act = [&](ServerContext& context, uint64_t) { return later(context.Defer()); };
  EXPECT_THAT(TextOf(Call()), HasSubstr(kWhyNull));
  ExpectNoHarm();
}

TEST_F(NullPeerTest, ItSaysWhyAlsoLaterAndElsewhere) {
  std::shared_ptr<Channel> kept;
  {
    TestServer server;
    server.probe.on_act = [&](ServerContext& context, uint64_t) {
      kept = context.peer();
      return absl::OkStatus();
    };
    EXPECT_THAT(SendAct(server.Connect(), 1).Wait(), IsOk());
  }
  ASSERT_EQ(kept, nullptr);
  const absl::Status status = probe::ListenerStub(kept).Notify().Send().Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(TextOf(status), HasSubstr(kWhyNull));
  kept.reset();
}

TEST(NullChannelTest, AHandlerOfAClientHasNoPeer) {
  class Offered final : public probe::ListenerService {
    absl::Status Notify(ServerContext& context, probe::Listener::NotifyParams::Reader,
                        probe::Listener::NotifyResults::Builder) override {
      auto deferred = std::make_shared<DeferredCall>(context.Defer());
      SendAct(context.peer(), 1).Then([deferred](auto reply) { deferred->Finish(reply.status()); });
      return absl::OkStatus();
    }
  } offered;
  TestServer server;
  const auto channel = server.Connect({.services = {&offered}});
  const std::shared_ptr<Channel> back = WayBack(server, channel);
  const absl::Status status = probe::ListenerStub(back).Notify({.timeout = kLong}).Send().Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(TextOf(status), HasSubstr("the handler is of a service that a client offers"));
}

TEST(NullChannelTest, AStubWithoutAChannelFails) {
  const absl::Status status = SendAct(nullptr, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(TextOf(status),
              HasSubstr("calling probe.capnp:Probe.act: the stub was made without a channel"));
}

TEST(NullChannelTest, ACallbackRunsOutsideOfTheCaller) {
  absl::Mutex mutex;
  Box<absl::Status> results;
  {
    absl::MutexLock lock(&mutex);
    SendAct(nullptr, 1).Then([&](auto reply) {
      { absl::MutexLock inside(&mutex); }
      results.Put(reply.status());
    });
  }
  EXPECT_THAT(results.Take(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST(NullChannelTest, ADynamicCallFailsLikewise) {
  auto call = DynamicCall::Create(nullptr, capnp::Schema::from<probe::Probe>().getMethodByName("act"));
  ASSERT_THAT(call.status(), IsOk());
  call->request().set("number", 1);
  EXPECT_THAT(call->Send().Wait().status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST(NullChannelTest, ACallThatIsNotSentLeavesNothing) { auto call = probe::ProbeStub(nullptr).Act(); }

}  // namespace
}  // namespace hawser
