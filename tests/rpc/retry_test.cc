// What happens to calls when their connection is lost, and how the channel makes the next connection.

#include <memory>
#include <string>
#include <vector>

#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/spy_fabric.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/cable.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// No server listens there.
std::string DeadUri() {
  TestServer gone;
  return gone.uri;
}

const char* NothingListens() { return TestScheme() == "tcp" ? "ECONNREFUSED" : "nothing listens there"; }

TEST(RetryTest, ASentCallFailsAtOnceWithUnavailableAndIsNotRunAgain) {
  TestServer server;
  Cable cable(server.uri);
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    return number == 1 ? server.held.Handler()(context, number) : absl::OkStatus();
  };
  const auto channel = *cable.Connect();
  auto call = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall deferred = server.held.Take();
  cable.Cut();
  const absl::Status status = call.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(WasSent(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the server may have run it"));
  EXPECT_TRUE(Eventually([&] { return deferred.context().cancelled(); })) << "the handler was not told";
  EXPECT_THAT(SendAct(channel, 2).Wait(), IsOk()) << "the channel did not reconnect";
  EXPECT_EQ(server.probe.runs, 2);
}

TEST(RetryTest, AnIdempotentCallIsSentAgain) {
  TestServer server;
  Cable cable(server.uri);
  server.probe.on_act = server.held.Handler();
  const auto channel = *cable.Connect();
  auto call = SendActAgain(channel, 7, {.timeout = kLong});
  DeferredCall first = server.held.Take();
  cable.Cut();
  server.held.Take().Finish();
  const auto reply = call.Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getNumber(), 7u);
  EXPECT_EQ(server.probe.runs, 2);
}

TEST(RetryTest, AnIdempotentCallIsSentThreeTimesAtMost) {
  TestServer server;
  Cable cable(server.uri);
  server.probe.on_act = server.held.Handler();
  const auto channel = *cable.Connect();
  auto call = SendActAgain(channel, 7, {.timeout = kLong});
  std::vector<DeferredCall> taken;
  for (int i = 0; i < 3; ++i) {
    taken.push_back(server.held.Take());
    cable.Cut();
  }
  const absl::Status status = call.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(WasSent(status));
  EXPECT_EQ(server.probe.runs, 3);
}

TEST(RetryTest, AnIdempotentCallIsNotSentAgainAfterItsDeadline) {
  TestServer server;
  Cable cable(server.uri);
  server.probe.on_act = server.held.Handler();
  const auto channel = *cable.Connect({.backoff_min = absl::Seconds(30)});
  auto call = SendActAgain(channel, 7, {.timeout = absl::Seconds(2)});
  DeferredCall deferred = server.held.Take();
  cable.Pass(false);
  cable.Cut();
  const absl::Status status = call.Wait().status();
  EXPECT_THAT(status, Not(IsOk()));
  EXPECT_TRUE(WasSent(status));
  EXPECT_EQ(server.probe.runs, 1);
}

TEST(RetryTest, ACancelledIdempotentCallIsNotSentAgain) {
  TestServer server;
  Cable cable(server.uri);
  server.probe.on_act = server.held.Handler();
  const auto channel = *cable.Connect({.backoff_min = absl::Seconds(30)});
  auto call = SendActAgain(channel, 7, {.timeout = kLong, .wait_for_ready = true});
  DeferredCall deferred = server.held.Take();
  cable.Pass(false);
  cable.Cut();
  EXPECT_TRUE(Eventually([&] { return channel->state() != ChannelState::kReady; }));
  call.Cancel();
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
}

// The flush does not complete, as with a stuck device or driver.
TEST(RetryTest, TheNextConnectionDoesNotWaitForTheOldOnesFlush) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "a Cable over RDMA has a runtime of its own";
  TestServer server;
  Cable cable(server.uri);
  auto spy = std::make_shared<transport::SpyFabric>(NewTestFabric());
  const auto runtime = *transport::Runtime::CreateOn(spy, {}, /*start_threads=*/true);
  const auto keep_back = [&](bool keep) {
    Box<size_t> done;
    runtime->poller(0).Run([&] {
      spy->KeepBackFlushes(keep);
      done.Put(spy->live_queue_pairs());
    });
    return done.Take();
  };
  Box<ChannelState> states;
  ChannelOptions options;
  options.runtime = runtime;
  options.on_state_change = [&](ChannelState state, const absl::Status&) { states.Put(state); };
  const auto channel = *cable.Connect(std::move(options));
  EXPECT_EQ(states.Take(), ChannelState::kReady);
  keep_back(true);
  cable.Cut();
  EXPECT_EQ(states.Take(), ChannelState::kConnecting);
  EXPECT_EQ(states.Take(), ChannelState::kReady);
  EXPECT_EQ(keep_back(true), 2u) << "the old queue pair did not linger";
  EXPECT_THAT(SendAct(channel, 2, {.timeout = kLong}).Wait().status(), IsOk());
  keep_back(false);
}

TEST(RetryTest, ACallThatWasNotSentYetIsSentOnTheNextConnection) {
  TestServer server;
  Cable cable(server.uri);
  server.probe.on_act = server.held.Handler();
  const auto channel = *cable.Connect({.connection = {.slots = 1}});
  auto sent = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall deferred = server.held.Take();
  auto waiting = SendAct(channel, 2, {.timeout = kLong});
  cable.Cut();
  EXPECT_THAT(sent.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  server.held.Take().Finish();
  EXPECT_THAT(waiting.Wait().status(), IsOk());
}

TEST(RetryTest, WithNobodyThereACallFailsUnsentAndSaysWhy) {
  const std::string uri = DeadUri();
  const auto channel = *Channel::Create(uri);
  const absl::Status status = SendAct(channel, 1, {.timeout = kLong}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(uri));
  EXPECT_THAT(std::string(status.message()), HasSubstr(NothingListens()));
}

TEST(RetryTest, ACallThatWaitedForAConnectionSaysWhyThereIsNone) {
  std::string uri;
  {
    TestServer gone;
    uri = gone.uri;
  }
  const auto channel = *Channel::Create(uri);
  EXPECT_TRUE(Eventually([&] { return channel->state() == ChannelState::kTransientFailure; }));
  const absl::Status status =
      SendAct(channel, 1, {.timeout = absl::Seconds(2), .wait_for_ready = true}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("waited for a connection; not connected: connect to "));
}

TEST(RetryTest, WhyThereIsNoConnectionSaysHowOldThatIsAndWhenTheNextAttemptIs) {
  ClockedRuntime clocked;
  {
    const auto channel = *Channel::Create(
        DeadUri(),
        {.backoff_min = absl::Seconds(60), .backoff_max = absl::Seconds(60), .runtime = clocked.get()});
    const std::string first(SendAct(channel, 1, {.timeout = kLong}).Wait().status().message());
    EXPECT_THAT(first, HasSubstr(NothingListens()));
    EXPECT_THAT(first, testing::Not(HasSubstr(" ago")));
    EXPECT_THAT(first, testing::ContainsRegex("; the next attempt is in [3-6][0-9] s; it was not sent"));
    ASSERT_NO_FATAL_FAILURE(clocked.Pass(absl::Seconds(20)));
    const std::string later(SendAct(channel, 1, {.timeout = kLong}).Wait().status().message());
    EXPECT_THAT(later, HasSubstr(NothingListens()));
    EXPECT_THAT(later, testing::ContainsRegex(" \\(20 s ago\\); the next attempt is in [1-4][0-9] s"));
  }
}

TEST(RetryTest, AConnectionForgetsWhyTheLastAttemptFailed) {
  TestServer server;
  const auto channel = server.Connect();
  EXPECT_THAT(server.server.Shutdown(absl::InfinitePast()), IsOk());
  EXPECT_TRUE(Eventually([&] { return channel->state() == ChannelState::kTransientFailure; }));
  TestServer again({}, server.uri);
  EXPECT_TRUE(Eventually([&] { return channel->state() == ChannelState::kReady; }));
  again.probe.on_act = again.held.Handler();
  std::vector<PendingCall<probe::Probe::ActResults>> calls;
  for (int i = 0; i < 32; ++i) calls.push_back(SendAct(channel, i));
  const absl::Status status = SendAct(channel, 1, {.timeout = kExpires}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("not connected")));
}

TEST(RetryTest, ConnectSaysThatNobodyIsThere) {
  const auto channel = Channel::Connect(DeadUri());
  EXPECT_THAT(channel.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(channel.status().message()), HasSubstr(NothingListens()));
}

// A callback that tries again at once must not run inside the failed call, or the stack would overflow.
TEST(RetryTest, ACallbackThatTriesForeverDoesNotRecurse) {
  const auto channel = *Channel::Create(DeadUri(), {.backoff_min = kLong, .backoff_max = kLong});
  EXPECT_TRUE(Eventually([&] { return channel->state() == ChannelState::kTransientFailure; }));
  Box<bool> done;
  int left = 50'000;
  std::function<void()> again = [&] {
    if (--left == 0) return done.Put(true);
    SendAct(channel, 1).Then([&](auto reply) {
      EXPECT_THAT(reply, Not(IsOk()));
      again();
    });
  };
  again();
  EXPECT_TRUE(done.Take());
}

TEST(RetryTest, AServerThatIsBackAtItsPortIsFoundAgain) {
  auto server = std::make_unique<TestServer>();
  const std::string uri = server->uri;
  absl::Mutex mutex;
  std::vector<ChannelState> states;
  const auto channel =
      *Channel::Connect(uri, {.backoff_min = absl::Milliseconds(1),
                              .backoff_max = absl::Milliseconds(20),
                              .on_state_change = [&](ChannelState state, const absl::Status&) {
                                absl::MutexLock lock(&mutex);
                                if (states.size() < 3) states.push_back(state);
                              }});
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  server.reset();
  EXPECT_TRUE(Eventually([&] { return channel->state() == ChannelState::kTransientFailure; }));
  auto waiting = SendAct(channel, 2, {.timeout = kLong, .wait_for_ready = true});
  server = std::make_unique<TestServer>(ServerOptions{}, uri);
  EXPECT_THAT(waiting.Wait().status(), IsOk());
  EXPECT_EQ(channel->state(), ChannelState::kReady);
  channel->Close();
  absl::MutexLock lock(&mutex);
  EXPECT_THAT(states,
              ElementsAre(ChannelState::kReady, ChannelState::kConnecting, ChannelState::kTransientFailure));
}

TEST(RetryTest, AttemptsBecomeRarer) {
  TestServer server;
  Cable cable(server.uri);
  cable.Pass(false);
  const absl::Time start = absl::Now();
  const auto channel =
      *cable.Create({.backoff_min = absl::Milliseconds(10), .backoff_max = absl::Milliseconds(80)});
  EXPECT_TRUE(Eventually([&] { return cable.connections() >= 6; }));
  // The channel waits for at least half of 10 + 20 + 40 + 80 + 80 ms.
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(115));
  cable.Pass(true);
  EXPECT_THAT(SendAct(channel, 1, {.timeout = kLong, .wait_for_ready = true}).Wait(), IsOk());
}

TEST(RetryTest, CloseEndsEveryCallWithCancelled) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect({.connection = {.slots = 1}});
  auto sent = SendAct(channel, 1);
  DeferredCall deferred = server.held.Take();
  auto waiting = SendAct(channel, 2);
  Box<bool> closed;
  channel->OnClosed([&] { closed.Put(true); });
  channel->Close();
  const absl::Status status = sent.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_TRUE(WasSent(status));
  EXPECT_THAT(waiting.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_TRUE(closed.Take());
  EXPECT_EQ(channel->state(), ChannelState::kClosed);
  EXPECT_THAT(SendAct(channel, 3).Wait().status(), HasCode(absl::StatusCode::kCancelled));
  channel->OnClosed([&] { closed.Put(true); });
  EXPECT_TRUE(closed.Take());
}

}  // namespace
}  // namespace hawser
