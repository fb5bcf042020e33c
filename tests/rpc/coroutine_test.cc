// Coroutines that wait for calls, and what becomes of those that are destroyed meanwhile.

#include <array>
#include <atomic>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/dynamic_call.h"
#include "hawser/rpc/executor.h"
#include "hawser/rpc/first_of.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/sleep.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using Act = absl::StatusOr<Reply<probe::Probe::ActResults>>;
using PendingAct = PendingCall<probe::Probe::ActResults>;

// Starts at once; owned by its handle, which stays valid after its end.
class Coroutine {
 public:
  struct promise_type {
    Coroutine get_return_object() { return Coroutine(Handle::from_promise(*this)); }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };

  Coroutine(Coroutine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Coroutine() { Destroy(); }
  void Destroy() {
    if (handle_) std::exchange(handle_, nullptr).destroy();
  }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Coroutine(Handle handle) : handle_(handle) {}
  Handle handle_;
};

Coroutine Await(PendingAct call, bool& resumed) {
  Act reply = co_await std::move(call);
  resumed = true;
}

class CoroutineTest : public testing::Test {
 protected:
  // Returns when both sides have handled everything that was sent so far.
  void Settle() {
    auto echo = probe::ProbeStub(channel_).Echo();
    echo.request().initData(8);
    EXPECT_THAT(echo.Send().Wait(), IsOk());
    while (client_.poller().PollOnce() != 0) {
    }
  }

  TestServer server_;
  Driven client_;
  std::shared_ptr<Channel> channel_ = server_.Connect({.runtime = client_.runtime});
};

TEST_F(CoroutineTest, DestroyedWhileItsCallIsPendingItCancelsAndIsNotResumed) {
  server_.probe.on_act = server_.held.Handler();
  bool resumed = false;
  Coroutine waiting = Await(SendAct(channel_, 1), resumed);
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 1; }));
  DeferredCall deferred = server_.held.Take();
  waiting.Destroy();
  EXPECT_TRUE(client_.Until([&] { return deferred.context().cancelled(); }));
  deferred.Finish();
  Settle();
  EXPECT_FALSE(resumed);
}

TEST_F(CoroutineTest, DestroyedBeforeItsResultIsHandedOverItIsNotResumed) {
  auto call = SendAct(channel_, 1);
  ASSERT_THAT(SendAct(channel_, 2).Wait(), IsOk());  // So the result of the first has arrived, too.
  bool resumed = false;
  Coroutine waiting = Await(std::move(call), resumed);
  EXPECT_FALSE(resumed);
  waiting.Destroy();
  Settle();
  EXPECT_FALSE(resumed);
}

TEST_F(CoroutineTest, ACallbackMayDestroyOneWhoseResultComesInTheSameTurn) {
  bool resumed = false, destroyed = false;
  std::unique_ptr<Coroutine> waiting;
  SendAct(channel_, 1).Then([&](Act) {
    waiting.reset();
    destroyed = true;
  });
  waiting = std::make_unique<Coroutine>(Await(SendAct(channel_, 2), resumed));
  ASSERT_TRUE(client_.Until([&] { return destroyed; }));
  Settle();
  EXPECT_FALSE(resumed);
}

TEST_F(CoroutineTest, DestroyedUnsentItIsNotResumed) {
  std::shared_ptr<Channel> closed = server_.Connect({.runtime = client_.runtime});
  closed->Close();
  bool resumed = false;
  Coroutine waiting = Await(SendAct(closed, 1), resumed);
  waiting.Destroy();
  Settle();
  EXPECT_FALSE(resumed);
}

Coroutine AwaitInPlace(PendingAct& call, absl::StatusCode& code) {
  Act reply = co_await call;
  code = reply.status().code();
}

TEST_F(CoroutineTest, ACallThatIsAwaitedCanBeCancelled) {
  server_.probe.on_act = server_.held.Handler();
  PendingAct call = SendAct(channel_, 1);
  absl::StatusCode code = absl::StatusCode::kUnknown;
  Coroutine waiting = AwaitInPlace(call, code);
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 1; }));
  call.Cancel();
  EXPECT_TRUE(client_.Until([&] { return code == absl::StatusCode::kCancelled; }));
  server_.held.Take().Finish();
  Settle();
}

Coroutine AwaitMoved(PendingAct& call, absl::StatusCode& code) {
  Act reply = co_await std::move(call);
  code = reply.status().code();
}

TEST_F(CoroutineTest, ACallThatIsAwaitedAsAnRvalueCanBeCancelled) {
  server_.probe.on_act = server_.held.Handler();
  PendingAct call = SendAct(channel_, 1);
  absl::StatusCode code = absl::StatusCode::kUnknown;
  Coroutine waiting = AwaitMoved(call, code);
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 1; }));
  call.Cancel();
  EXPECT_TRUE(client_.Until([&] { return code == absl::StatusCode::kCancelled; }));
  server_.held.Take().Finish();
  Settle();
}

TEST_F(CoroutineTest, ResumedToItsEndItCancelsNothing) {
  bool resumed = false;
  Coroutine waiting = Await(SendAct(channel_, 1), resumed);
  EXPECT_TRUE(client_.Until([&] { return resumed; }));
  waiting.Destroy();
  Settle();
}

// From its second call on, on the poller.
Coroutine AwaitTwo(std::shared_ptr<Channel> channel, int& resumed, absl::StatusCode& code) {
  const Act first = co_await SendAct(channel, 1);
  EXPECT_THAT(first, IsOk());
  ++resumed;
  const Act reply = co_await SendAct(channel, 2);
  code = reply.status().code();
  ++resumed;
}

TEST_F(CoroutineTest, DestroyedWhileACallOfThePollersIsPendingItCancels) {
  server_.probe.on_act = server_.held.Handler();
  int resumed = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  Coroutine waiting = AwaitTwo(channel_, resumed, code);
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 1; }));
  server_.held.Take().Finish();
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 2; }));
  ASSERT_EQ(resumed, 1);
  DeferredCall deferred = server_.held.Take();
  waiting.Destroy();
  EXPECT_TRUE(client_.Until([&] { return deferred.context().cancelled(); }));
  deferred.Finish();
  Settle();
  EXPECT_EQ(resumed, 1);
}

TEST_F(CoroutineTest, ACallOfThePollersEndsWithItsChannel) {
  server_.probe.on_act = server_.held.Handler();
  int resumed = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  Coroutine waiting = AwaitTwo(channel_, resumed, code);
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 1; }));
  server_.held.Take().Finish();
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 2; }));
  channel_->Close();
  EXPECT_TRUE(client_.Until([&] { return resumed == 2; }));
  EXPECT_EQ(code, absl::StatusCode::kCancelled);
  server_.held.Take().Finish();
}

// The poller keeps the objects of calls that ended there.
TEST_F(CoroutineTest, AChannelEndsWhosePollerHasKeptCalls) {
  std::shared_ptr<Channel> channel = server_.Connect({.runtime = client_.runtime});
  int resumed = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  Coroutine waiting = AwaitTwo(channel, resumed, code);
  ASSERT_TRUE(client_.Until([&] { return resumed == 2; }));
  EXPECT_EQ(code, absl::StatusCode::kOk);
  waiting.Destroy();
  const std::weak_ptr<internal::ChannelCore> core = channel->core();
  channel.reset();
  EXPECT_TRUE(client_.Until([&] { return core.expired(); }));
}

// ---- A coroutine type of the application may wrap what it awaits, and resume later than it is told to, as
// one that has an executor does.

using Ready = std::vector<std::coroutine_handle<>>;  // What the executor is to resume.

// Resumed, it adds a coroutine to those that are ready.
class Step {
 public:
  struct promise_type {
    Step get_return_object() { return Step(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };

  Step(Step&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Step() {
    if (handle_) handle_.destroy();
  }
  std::coroutine_handle<> handle() const { return handle_; }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Step(Handle handle) : handle_(handle) {}
  Handle handle_;
};

Step MakeReady(Ready& ready, std::coroutine_handle<> coroutine) {
  ready.push_back(coroutine);
  co_return;
}

class ResumedLater {
 public:
  ResumedLater(PendingAct&& call, Ready& ready)
      : awaiter_(std::move(call).operator co_await()), ready_(ready) {}

  bool await_ready() const { return awaiter_.await_ready(); }
  void await_suspend(std::coroutine_handle<> coroutine) {
    step_.emplace(MakeReady(ready_, coroutine));
    awaiter_.await_suspend(step_->handle());
  }
  Act await_resume() { return awaiter_.await_resume(); }

 private:
  decltype(std::declval<PendingAct>().operator co_await()) awaiter_;
  Ready& ready_;
  std::optional<Step> step_;
};

class OnExecutor {
 public:
  struct promise_type {
    template <typename... Others>
    explicit promise_type(Ready& ready, Others&...) : ready_(ready) {}
    OnExecutor get_return_object() { return OnExecutor(Handle::from_promise(*this)); }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
    ResumedLater await_transform(PendingAct&& call) { return ResumedLater(std::move(call), ready_); }

   private:
    Ready& ready_;
  };

  OnExecutor(OnExecutor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~OnExecutor() { Destroy(); }
  void Destroy() {
    if (handle_) std::exchange(handle_, nullptr).destroy();
  }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit OnExecutor(Handle handle) : handle_(handle) {}
  Handle handle_;
};

OnExecutor AwaitTwoLater(Ready&, std::shared_ptr<Channel> channel, std::vector<uint64_t>& numbers) {
  for (const uint64_t number : {1, 2}) {
    const Act reply = co_await SendAct(channel, number);
    EXPECT_THAT(reply, IsOk());
    numbers.push_back(reply.ok() ? (*reply)->getNumber() : 0);
  }
}

class ResumedLaterTest : public CoroutineTest {
 protected:
  // Returns when the coroutine is ready that awaits its second call, whose object another call uses by then.
  void GetReadyBesideAnotherCall() {
    ASSERT_TRUE(client_.Until([&] { return ready_.size() == 1; }));
    client_.poller().Run(
        [&] { std::exchange(ready_, {}).front().resume(); });  // Its second call: on the poller.
    ASSERT_TRUE(client_.Until([&] { return ready_.size() == 1; }));
    server_.probe.on_act = server_.held.Handler();
    client_.poller().Run([&] { other_.emplace(SendAct(channel_, 3)); });
    ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 3; }));
  }
  void FinishOther(DeferredCall deferred) {
    Settle();
    EXPECT_FALSE(deferred.context().cancelled());
    deferred.Finish();
    const Act reply = other_->Wait();
    ASSERT_THAT(reply, IsOk());
    EXPECT_EQ((*reply)->getNumber(), 3u);
  }

  Ready ready_;
  std::vector<uint64_t> numbers_;
  std::optional<PendingAct> other_;
  OnExecutor coroutine_ = AwaitTwoLater(ready_, channel_, numbers_);
};

TEST_F(ResumedLaterTest, ItHasTheResultOfItsOwnCall) {
  ASSERT_NO_FATAL_FAILURE(GetReadyBesideAnotherCall());
  ready_.front().resume();
  EXPECT_EQ(numbers_, (std::vector<uint64_t>{1, 2}));
  FinishOther(server_.held.Take());
}

TEST_F(ResumedLaterTest, DestroyedBeforeItCancelsNoOtherCall) {
  ASSERT_NO_FATAL_FAILURE(GetReadyBesideAnotherCall());
  coroutine_.Destroy();
  FinishOther(server_.held.Take());
  EXPECT_EQ(numbers_, (std::vector<uint64_t>{1}));
}

// ---- gcc 12 destroys twice what an aggregate, or what a lambda captures, holds that is made inside a
// co_await expression (PR 107288). No form of a call that the guide shows has such an object, or it is empty.

Coroutine AwaitEachForm(std::shared_ptr<Channel> channel, CallOptions options, int& ended) {
  probe::ProbeStub stub(channel);
  const auto is_ok = [&ended](const Act& reply) {
    EXPECT_THAT(reply, IsOk());
    ++ended;
  };
  is_ok(co_await stub.Act().Send());
  is_ok(co_await stub.Act({.timeout = kLong}).Send());
  is_ok(co_await stub.Act({.timeout = kLong, .wait_for_ready = true}).Send());
  is_ok(co_await stub.Act(options).Send());
  is_ok(co_await stub.Act(CallOptions(options)).Send());
  is_ok(co_await SendAct(channel, 1, {.timeout = kLong}));
  is_ok(co_await SendAct(channel, 1, options));
  PendingAct pending = SendAct(channel, 1, options);
  is_ok(co_await pending);
  PendingAct moved = SendAct(channel, 1, options);
  is_ok(co_await std::move(moved));
  auto call = stub.Act(options);
  call.request().setNumber(1);
  is_ok(co_await call.Send());
}

TEST_F(CoroutineTest, EachFormOfACallReleasesItsOptionsOnce) {
  TestServer other;
  other.probe.on_act = other.held.Handler();
  auto served = SendAct(other.Connect(), 1);
  DeferredCall deferred = other.held.Take();
  const CallOptions options = CallOptions::For(deferred.context());
  const std::shared_ptr<internal::CancelScope>& scope = options.scope.get();
  ASSERT_NE(scope, nullptr);
  const long owners = scope.use_count();
  const long channels = channel_.use_count();
  int ended = 0;
  {
    Coroutine waiting = AwaitEachForm(channel_, options, ended);
    EXPECT_TRUE(client_.Until([&] { return ended == 10; }));
  }
  Settle();
  EXPECT_EQ(scope.use_count(), owners);
  EXPECT_EQ(channel_.use_count(), channels);
  deferred.Finish();
  EXPECT_THAT(served.Wait(), IsOk());
}

// What else is awaited, or is made in the expression that awaits. What is no aggregate is destroyed once.
template <typename... Types>
constexpr bool kNoneIsAnAggregate = !(std::is_aggregate_v<Types> || ...);
using ActCall = decltype(std::declval<probe::ProbeStub&>().Act());
using First = FirstOf<probe::Probe::ActResults>;
static_assert(
    kNoneIsAnAggregate<Sleep, Executor::Scheduled,                                        //
                       First, decltype(std::declval<First&>().Within(absl::Duration())),  //
                       decltype(std::declval<First&>().Result()),                         //
                       RemoteMemory, RemoteOperation, RemoteOperation::Awaiter,           //
                       ActCall, PendingAct, decltype(std::declval<PendingAct&>().operator co_await()),
                       Reply<probe::Probe::ActResults>, Act, DynamicCall, PendingDynamicCall,  //
                       probe::ProbeStub, Metadata>,
    "gcc 12 would destroy twice what it holds");
// Those that are written in braces hold nothing.
static_assert(std::is_trivially_destructible_v<RemoteOptions> &&
              std::is_trivially_destructible_v<RemoteRange> &&
              std::is_trivially_destructible_v<RemoteStride>);

std::unique_ptr<First> RacingOf(const std::shared_ptr<Channel>& channel) {
  auto first = std::make_unique<First>();
  first->Add(SendAct(channel, 1));
  return first;
}

Coroutine AwaitEachOther(ServerContext& context, Executor& executor, std::shared_ptr<Channel> channel,
                         std::atomic<bool>& ended) {
  const bool within = co_await RacingOf(channel)->Within(kLong);
  EXPECT_TRUE(within);
  const Act first = co_await RacingOf(channel)->Result();
  EXPECT_THAT(first, IsOk());
  const absl::Status slept = co_await Sleep(context, kExpires);
  EXPECT_THAT(slept, IsOk());
  std::array<uint8_t, 8> bytes = {};
  const absl::Status read = co_await RemoteMemory(channel, memory::Ticket::Reader())
                                .Read(0, absl::MakeSpan(bytes), {.timeout = kLong});
  EXPECT_THAT(read, HasCode(absl::StatusCode::kInvalidArgument)) << "a ticket of no bytes";
  const std::array<RemoteRange, 2> ranges = {{{0, 4}, {4, 4}}};
  const absl::Status gathered =
      co_await RemoteMemory(channel, memory::Ticket::Reader()).Read(ranges, absl::MakeSpan(bytes));
  EXPECT_THAT(gathered, HasCode(absl::StatusCode::kInvalidArgument));
  const absl::Status scheduled = co_await executor.Schedule();
  EXPECT_THAT(scheduled, IsOk());
  ended = true;
}

TEST_F(CoroutineTest, EachAwaitableReleasesWhatItHoldsOnce) {
  TestServer other;
  other.probe.on_act = other.held.Handler();
  auto served = SendAct(other.Connect(), 1);
  DeferredCall deferred = other.held.Take();
  std::unique_ptr<Executor> executor = *Executor::Create({});
  const long channels = channel_.use_count();
  std::atomic<bool> ended{false};
  {
    Coroutine waiting = AwaitEachOther(deferred.context(), *executor, channel_, ended);
    EXPECT_TRUE(client_.Until([&] { return ended.load(); }));
    executor.reset();  // Its thread has left the coroutine.
  }
  Settle();
  EXPECT_EQ(channel_.use_count(), channels);
  deferred.Finish();
  EXPECT_THAT(served.Wait(), IsOk());
}

template <typename Scope>
concept CanBeNamedInBraces = requires(const Scope& scope) {
  CallOptions{.scope = scope};
};
static_assert(!CanBeNamedInBraces<internal::ScopeRef>, "a scope in braces would be destroyed twice");
static_assert(std::is_copy_constructible_v<CallOptions> && std::is_copy_assignable_v<CallOptions>);

// ---- Send and forget.

TEST_F(CoroutineTest, ACallThatIsForgottenGoesOn) {
  server_.probe.on_act = server_.held.Handler();
  SendAct(channel_, 1).Forget();
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 1; }));
  DeferredCall deferred = server_.held.Take();
  Settle();
  EXPECT_FALSE(deferred.context().cancelled());
  deferred.Finish();
  Settle();
}

// ---- The first of several calls.

Coroutine AwaitResult(First& first, Box<Act>& results) { results.Put(co_await first.Result()); }

class FirstOfTest : public CoroutineTest {
 protected:
  FirstOfTest() { server_.probe.on_act = server_.held.Handler(); }
  ~FirstOfTest() override { other_.held.DropAll(); }

  bool AwaitRuns(int runs) {
    return client_.Until([&] { return server_.probe.runs == runs; });
  }
  bool AwaitResults(size_t count) {
    return client_.Until([&] { return results_.size() == count; });
  }

  TestServer other_;
  Box<Act> results_;
};

TEST_F(FirstOfTest, ItIsTheReplyThatComesFirstAndTheOthersAreCancelled) {
  std::optional<First> race(std::in_place);
  race->Add(SendAct(channel_, 1, {.timeout = 2 * kLong}));
  race->Add(SendAct(channel_, 2, {.timeout = 2 * kLong}));
  Coroutine waiting = AwaitResult(*race, results_);
  ASSERT_TRUE(AwaitRuns(2));
  DeferredCall one = server_.held.Take(), two = server_.held.Take();
  two.Finish();
  ASSERT_TRUE(AwaitResults(1));
  const Act reply = results_.Take();
  ASSERT_THAT(reply, IsOk());
  EXPECT_EQ((*reply)->getNumber(), 2u);
  race.reset();
  EXPECT_TRUE(client_.Until([&] { return one.context().cancelled(); }));
}

TEST_F(FirstOfTest, AnErrorCountsOnlyIfAllFail) {
  First first;
  first.Add(SendAct(channel_, 1));
  first.Add(SendAct(channel_, 2));
  Coroutine waiting = AwaitResult(first, results_);
  ASSERT_TRUE(AwaitRuns(2));
  server_.held.Take().Finish(absl::AbortedError("one"));
  Settle();
  EXPECT_EQ(results_.size(), 0u);
  server_.held.Take().Finish(absl::NotFoundError("two"));
  ASSERT_TRUE(AwaitResults(1));
  EXPECT_THAT(results_.Take().status(), HasCode(absl::StatusCode::kNotFound));
  Coroutine again = AwaitResult(first, results_);
  EXPECT_THAT(results_.Take().status(), HasCode(absl::StatusCode::kFailedPrecondition)) << "it was taken";
}

Coroutine AwaitWithin(First& first, absl::Duration time, Box<bool>& has_reply) {
  has_reply.Put(co_await first.Within(time));
}

TEST_F(FirstOfTest, WithoutACallTheResultIsFailedPrecondition) {
  First first;
  Coroutine waiting = AwaitResult(first, results_);
  EXPECT_THAT(results_.Take().status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_F(FirstOfTest, WithinEndsAtTheTimeAtAReplyAndWhenAllHaveFailed) {
  First first;
  Box<bool> within;
  Coroutine none = AwaitWithin(first, kLong, within);
  EXPECT_FALSE(within.Take()) << "nothing was added";
  first.Add(SendAct(channel_, 1));
  Coroutine early = AwaitWithin(first, absl::ZeroDuration(), within);
  EXPECT_FALSE(within.Take());
  Coroutine late = AwaitWithin(first, kExpires, within);
  ASSERT_TRUE(client_.Until([&] { return within.size() == 1; }));
  EXPECT_FALSE(within.Take()) << "it is still under way";
  ASSERT_TRUE(AwaitRuns(1));
  Coroutine failing = AwaitWithin(first, kLong, within);
  server_.held.Take().Finish(absl::AbortedError("one"));
  ASSERT_TRUE(client_.Until([&] { return within.size() == 1; }));
  EXPECT_FALSE(within.Take()) << "all have failed";
  first.Add(SendAct(channel_, 2));
  Coroutine replied = AwaitWithin(first, kLong, within);
  ASSERT_TRUE(AwaitRuns(2));
  server_.held.Take().Finish();
  ASSERT_TRUE(client_.Until([&] { return within.size() == 1; }));
  EXPECT_TRUE(within.Take());
  Coroutine result = AwaitResult(first, results_);
  EXPECT_THAT(results_.Take(), IsOk());
}

TEST_F(FirstOfTest, DestroyedWhileItWaitsACoroutineIsNotResumed) {
  First first;
  Box<bool> within;
  first.Add(SendAct(channel_, 1));
  Coroutine waiting = AwaitWithin(first, kLong, within);
  ASSERT_TRUE(AwaitRuns(1));
  waiting.Destroy();
  server_.held.Take().Finish();
  server_.probe.on_act = [](ServerContext&, uint64_t) { return absl::OkStatus(); };
  Settle();
  EXPECT_EQ(within.size(), 0u);
}

// ---- Sleep.

Coroutine AwaitSleep(ServerContext& context, absl::Duration time, std::atomic<bool>& resumed) {
  absl::Status slept = co_await Sleep(context, time);
  resumed = true;
}

TEST(SleepTest, DestroyedWhileItSleepsACoroutineIsNotResumed) {
  ClockedRuntime clocked;
  std::atomic<bool> resumed{false}, other_resumed{false};
  {
    TestServer server({.runtime = clocked.get()});
    server.probe.on_act = server.held.Handler();
    auto call = SendAct(server.Connect(), 1, {.timeout = kLong});
    DeferredCall deferred = server.held.Take();
    constexpr absl::Duration kNap = absl::Seconds(3);
    Coroutine destroyed = AwaitSleep(deferred.context(), kNap, resumed);
    Coroutine waiting = AwaitSleep(deferred.context(), kNap, other_resumed);
    destroyed.Destroy();
    ASSERT_NO_FATAL_FAILURE(clocked.Pass(kNap));
    EXPECT_TRUE(Eventually([&] { return other_resumed.load(); }));
    deferred.Finish();
    EXPECT_THAT(call.Wait(), IsOk());
  }
  EXPECT_FALSE(resumed);
}

}  // namespace
}  // namespace hawser
