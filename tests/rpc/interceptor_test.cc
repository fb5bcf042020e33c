// Interceptors see the calls of a channel and of a server, each from its begin to its one end.

#include "hawser/rpc/interceptor.h"

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "hawser/rpc/client/outgoing_calls.h"
#include "hawser/rpc/log.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/cable.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Side = Interceptor::Side;

// What happened, in order. Thread: any.
class Diary {
 public:
  void Add(std::string line) {
    absl::MutexLock lock(&mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> lines() {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }
  std::vector<std::string> WaitFor(size_t count) {
    EXPECT_TRUE(Eventually([&] { return lines().size() >= count; }));
    return lines();
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> lines_;
};

class Writer final : public Interceptor {
 public:
  Writer(std::string name, std::shared_ptr<Diary> diary) : name_(std::move(name)), diary_(std::move(diary)) {}

  std::function<absl::Status(const Beginning&)> on_begin = [](const Beginning&) { return absl::OkStatus(); };
  std::function<void()> on_end = [] {};
  bool ends = true;

  absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning& call) override {
    diary_->Add(absl::StrCat(name_, call.side == Side::kClient ? " makes " : " serves ", call.method.name));
    EXPECT_FALSE(call.peer_address.empty());
    if (absl::Status status = on_begin(call); !status.ok()) return status;
    if (!ends) return nullptr;
    return std::make_unique<OneCall>(*this);
  }

 private:
  class OneCall final : public Call {
   public:
    explicit OneCall(Writer& writer) : writer_(writer) {}
    void OnEnd(const absl::Status& status) override {
      writer_.diary_->Add(absl::StrCat(writer_.name_, " ends ", absl::StatusCodeToString(status.code())));
      writer_.on_end();
    }

   private:
    Writer& writer_;
  };

  const std::string name_;
  const std::shared_ptr<Diary> diary_;  // Shared: a call may end after the test.
};

class InterceptorTest : public ::testing::Test {
 protected:
  ServerOptions Intercepted() {
    ServerOptions options;
    options.interceptors = {server_a, server_b};
    return options;
  }
  std::shared_ptr<Channel> Connect(TestServer& server, ChannelOptions options = {}) {
    options.interceptors = {client_a, client_b};
    return server.Connect(std::move(options));
  }
  ChannelOptions OnRuntime(std::shared_ptr<transport::Runtime> runtime) {
    ChannelOptions options;
    options.runtime = std::move(runtime);
    return options;
  }

  const std::shared_ptr<Diary> made_ = std::make_shared<Diary>(), served_ = std::make_shared<Diary>();
  Diary& made = *made_;
  Diary& served = *served_;
  const std::shared_ptr<Writer> client_a = std::make_shared<Writer>("a", made_);
  const std::shared_ptr<Writer> client_b = std::make_shared<Writer>("b", made_);
  const std::shared_ptr<Writer> server_a = std::make_shared<Writer>("a", served_);
  const std::shared_ptr<Writer> server_b = std::make_shared<Writer>("b", served_);
};

constexpr char kMakes[] = " makes probe.capnp:Probe.act";
constexpr char kServes[] = " serves probe.capnp:Probe.act";

TEST_F(InterceptorTest, BeginInOrderAndEndInTheReverseOrderOnBothSides) {
  TestServer server(Intercepted());
  EXPECT_THAT(SendAct(Connect(server), 1).Wait(), IsOk());
  EXPECT_THAT(made.lines(),
              ElementsAre(absl::StrCat("a", kMakes), absl::StrCat("b", kMakes), "b ends OK", "a ends OK"));
  EXPECT_THAT(served.WaitFor(4),
              ElementsAre(absl::StrCat("a", kServes), absl::StrCat("b", kServes), "b ends OK", "a ends OK"));
}

TEST_F(InterceptorTest, HearHowACallEnds) {
  TestServer server(Intercepted());
  server.probe.on_act = [](ServerContext&, uint64_t) { return absl::NotFoundError("no tow"); };
  client_a->ends = server_a->ends = false;
  EXPECT_EQ(SendAct(Connect(server), 1).Wait().status(), absl::NotFoundError("no tow"));
  EXPECT_THAT(made.lines(),
              ElementsAre(absl::StrCat("a", kMakes), absl::StrCat("b", kMakes), "b ends NOT_FOUND"));
  EXPECT_THAT(served.WaitFor(3),
              ElementsAre(absl::StrCat("a", kServes), absl::StrCat("b", kServes), "b ends NOT_FOUND"));
}

TEST_F(InterceptorTest, AddMetadataThatTheOtherSideSees) {
  TestServer server(Intercepted());
  client_a->on_begin = [](const Interceptor::Beginning& call) {
    EXPECT_EQ(call.metadata.Get("tenant"), "blue");
    call.outgoing_metadata.Add("trace", "7");
    return absl::OkStatus();
  };
  client_b->on_begin = [](const Interceptor::Beginning& call) {
    EXPECT_EQ(call.metadata.Get("trace"), "7");
    return absl::OkStatus();
  };
  server_a->on_begin = [](const Interceptor::Beginning& call) {
    EXPECT_EQ(call.metadata.Get("trace"), "7");
    call.outgoing_metadata.Add("served-by", "a");
    return absl::OkStatus();
  };
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    EXPECT_EQ(context.metadata().Get("tenant"), "blue");
    EXPECT_EQ(context.metadata().Get("trace"), "7");
    context.reply_metadata().Add("handled", "1");
    return absl::OkStatus();
  };
  const Metadata metadata = {{"tenant", "blue"}};
  const auto reply = SendAct(Connect(server), 1, {.metadata = &metadata}).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ(reply->metadata().Get("served-by"), "a");
  EXPECT_EQ(reply->metadata().Get("handled"), "1");
  EXPECT_FALSE(metadata.Get("trace").has_value());
}

// Its status reaches the caller as it is. Those before it hear the end when the caller gets the result, not
// in Send().
TEST_F(InterceptorTest, OneThatRefusesACallEndsItUnsent) {
  TestServer server(Intercepted());
  const Driven driven;
  const auto channel = Connect(server, OnRuntime(driven.runtime));
  client_b->on_begin = [](const Interceptor::Beginning&) {
    absl::Status refused = absl::ResourceExhaustedError("the quota");
    refused.SetPayload("type.test/quota", absl::Cord("7"));
    return refused;
  };
  auto pending = SendAct(channel, 1);
  EXPECT_THAT(made.lines(), ElementsAre(absl::StrCat("a", kMakes), absl::StrCat("b", kMakes)));
  const absl::Status status = pending.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(status.message(), "the quota");
  EXPECT_EQ(status.GetPayload("type.test/quota"), "7");
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(made.lines(),
              ElementsAre(absl::StrCat("a", kMakes), absl::StrCat("b", kMakes), "a ends RESOURCE_EXHAUSTED"));
  EXPECT_THAT(served.lines(), IsEmpty());
}

TEST_F(InterceptorTest, ARefusalCountsMoreThanARequestThatCannotBeSent) {
  TestServer server(Intercepted());
  const auto channel = Connect(server);
  const auto send = [&] {
    constexpr size_t kDataBytesMax = (size_t{1} << 29) - 1;
    auto call = probe::ProbeStub(channel).Echo();
    static const uint8_t byte = 0;
    call.request().adoptData(call.Attach({&byte, kDataBytesMax + 1}, nullptr));  // Looks at the size only.
    return call.Send().Wait().status();
  };
  EXPECT_THAT(send(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(made.WaitFor(4)[3], "a ends INVALID_ARGUMENT");
  client_b->on_begin = [](const Interceptor::Beginning&) { return absl::PermissionDeniedError("not you"); };
  EXPECT_THAT(send(), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(made.WaitFor(7)[6], "a ends PERMISSION_DENIED");
}

TEST_F(InterceptorTest, OneThatAddsMetadataThatBreaksARuleEndsTheCallUnsent) {
  TestServer server(Intercepted());
  client_a->on_begin = [](const Interceptor::Beginning& call) {
    call.outgoing_metadata.Add("No Key", "");
    return absl::OkStatus();
  };
  const absl::Status status = SendAct(Connect(server), 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(made.lines(), ElementsAre(absl::StrCat("a", kMakes), absl::StrCat("b", kMakes),
                                        "b ends INVALID_ARGUMENT", "a ends INVALID_ARGUMENT"));
}

TEST_F(InterceptorTest, OneThatRefusesARequestAnswersItInPlaceOfTheHandler) {
  TestServer server(Intercepted());
  server_b->on_begin = [](const Interceptor::Beginning& call) {
    call.outgoing_metadata.Add("because", "of that");
    return absl::PermissionDeniedError("not you");
  };
  const absl::Status status = SendAct(Connect(server), 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(status.message(), "not you");
  EXPECT_EQ(MetadataOf(status).Get("because"), "of that");
  EXPECT_FALSE(WasSent(status));
  EXPECT_EQ(server.probe.runs, 0);
  EXPECT_THAT(served.WaitFor(3), ElementsAre(absl::StrCat("a", kServes), absl::StrCat("b", kServes),
                                             "a ends PERMISSION_DENIED"));
}

TEST_F(InterceptorTest, ADeferredCallEndsWhenItIsFinished) {
  TestServer server(Intercepted());
  server.probe.on_act = server.held.Handler();
  auto pending = SendAct(Connect(server), 1);
  DeferredCall deferred = server.held.Take();
  EXPECT_EQ(served.lines().size(), 2u);
  deferred.Finish(absl::AbortedError("late"));
  EXPECT_THAT(pending.Wait().status(), HasCode(absl::StatusCode::kAborted));
  EXPECT_THAT(served.WaitFor(4), ElementsAre(absl::StrCat("a", kServes), absl::StrCat("b", kServes),
                                             "b ends ABORTED", "a ends ABORTED"));
}

TEST_F(InterceptorTest, ACallEndsOnceForItsCallerAndOnceForItsHandler) {
  ClockedRuntime clients;
  TestServer server(Intercepted());
  server.probe.on_act = server.held.Handler();
  client_a->ends = server_a->ends = false;
  const auto channel = Connect(server, OnRuntime(clients.get()));
  auto call = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall deferred = server.held.Take();
  clients.Pass(kLong);
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(made.lines(),
              ElementsAre(absl::StrCat("a", kMakes), absl::StrCat("b", kMakes), "b ends DEADLINE_EXCEEDED"));
  EXPECT_EQ(served.lines().size(), 2u);
  deferred.Finish();
  EXPECT_THAT(served.WaitFor(3),
              ElementsAre(absl::StrCat("a", kServes), absl::StrCat("b", kServes), "b ends OK"));
}

TEST_F(InterceptorTest, ACallThatIsNotSentDoesNotBegin) {
  TestServer server(Intercepted());
  const auto channel = Connect(server);
  { auto call = probe::ProbeStub(channel).Act(); }
  EXPECT_THAT(made.lines(), IsEmpty());
  SendAct(channel, 1).Cancel();
  EXPECT_EQ(made.WaitFor(4).size(), 4u);
}

TEST_F(InterceptorTest, WhatTheyThrowIsInternalAtTheBeginAndDroppedAtTheEnd) {
  Box<std::string> lines;
  SetLogSink([&](LogSeverity, absl::string_view line) { lines.Put(std::string(line)); });
  TestServer server(Intercepted());
  const auto channel = Connect(server);
  for (const auto& each : {client_b, server_b}) {
    each->on_begin = [](const Interceptor::Beginning&) -> absl::Status { throw std::runtime_error("oops"); };
    const absl::Status status = SendAct(channel, 1).Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInternal));
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("an interceptor of probe.capnp:Probe.act threw an exception"),
                      Not(HasSubstr("oops"))));
    while (!absl::StrContains(lines.Take(), "an interceptor threw: oops")) {
    }
    each->on_begin = [](const Interceptor::Beginning&) { return absl::OkStatus(); };
    each->on_end = [] { throw std::runtime_error("oops"); };
  }
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_EQ(server.probe.runs, 1);
  SetLogSink(nullptr);
}

TEST_F(InterceptorTest, RunWhereTheHandlerRuns) {
  ServerOptions options = Intercepted();
  std::vector<std::thread> threads;
  options.executor = [&](absl::AnyInvocable<void()> handler) { threads.emplace_back(std::move(handler)); };
  std::thread::id began, handled;
  server_a->on_begin = [&](const Interceptor::Beginning&) {
    began = std::this_thread::get_id();
    return absl::OkStatus();
  };
  {
    TestServer server(std::move(options));
    server.probe.on_act = [&](ServerContext&, uint64_t) {
      handled = std::this_thread::get_id();
      return absl::OkStatus();
    };
    EXPECT_THAT(SendAct(Connect(server), 1).Wait(), IsOk());
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(began, handled);
  EXPECT_EQ(served.lines().size(), 4u);
}

// A server's interceptors see what it makes over reverse connections, a channel's what its services serve.
TEST_F(InterceptorTest, SeePushedCallsToo) {
  class ListenerImpl final : public probe::ListenerService {
   public:
    absl::Status Notify(ServerContext&, probe::Listener::NotifyParams::Reader,
                        probe::Listener::NotifyResults::Builder) override {
      return absl::OkStatus();
    }
  } listener;
  TestServer server(Intercepted());
  ChannelOptions options;
  options.services = {&listener};
  options.interceptors = {client_a};
  const auto channel = server.Connect(std::move(options));
  const std::shared_ptr<Channel> peer = WayBack(server, channel);
  EXPECT_THAT(probe::ListenerStub(peer).Notify().Send().Wait(), IsOk());
  EXPECT_THAT(served.lines(), ::testing::Contains("b makes probe.capnp:Listener.notify"));
  EXPECT_THAT(made.lines(), ::testing::Contains("a serves probe.capnp:Listener.notify"));
}

TEST_F(InterceptorTest, ANullOneIsRefused) {
  ServerOptions server_options;
  server_options.interceptors = {nullptr};
  Server server(std::move(server_options));
  const absl::Status listening = server.Listen(TestUri()).status();
  EXPECT_THAT(listening, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(listening.message()), HasSubstr("ServerOptions::interceptors"));
  ChannelOptions options;
  options.interceptors = {server_a, nullptr};
  EXPECT_THAT(Channel::Create("tcp://127.0.0.1:1", std::move(options)).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

// ---- Each end once.

TEST_F(InterceptorTest, ACallThatIsSentAgainEndsOnceForItsCallerAndEachTimeForItsHandlers) {
  TestServer server(Intercepted());
  Cable cable(server.uri);
  server.probe.on_act = server.held.Handler();
  client_a->ends = server_a->ends = false;
  ChannelOptions options;
  options.interceptors = {client_b};
  const auto channel = *cable.Connect(std::move(options));
  auto call = SendActAgain(channel, 7, {.timeout = kLong});
  DeferredCall first = server.held.Take();
  cable.Cut();
  server.held.Take().Finish();
  EXPECT_THAT(call.Wait().status(), IsOk());
  first.Finish(absl::AbortedError("too late"));
  EXPECT_THAT(made.lines(), ElementsAre("b makes probe.capnp:Probe.actAgain", "b ends OK"));
  EXPECT_EQ(served.lines().size(), 6u);
  EXPECT_EQ(served.lines()[4], "b ends OK");
  EXPECT_EQ(served.lines()[5], "b ends ABORTED");
}

TEST_F(InterceptorTest, ADeferredCallThatIsDroppedEndsWithInternal) {
  TestServer server(Intercepted());
  server.probe.on_act = server.held.Handler();
  server_a->ends = false;
  auto pending = SendAct(Connect(server), 1);
  { const DeferredCall dropped = server.held.Take(); }
  EXPECT_THAT(pending.Wait().status(), HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(served.lines(),
              ElementsAre(absl::StrCat("a", kServes), absl::StrCat("b", kServes), "b ends INTERNAL"));
}

TEST_F(InterceptorTest, ADeferredCallThatIsFinishedAfterItsServerHasEndedEnds) {
  ServerOptions options = Intercepted();
  options.handler_grace = kExpires;
  server_a->ends = false;
  auto server = std::make_unique<TestServer>(std::move(options));
  server->probe.on_act = server->held.Handler();
  auto pending = SendAct(Connect(*server), 1);
  DeferredCall late = server->held.Take();
  server.reset();
  late.Finish();
  EXPECT_THAT(served.lines(),
              ElementsAre(absl::StrCat("a", kServes), absl::StrCat("b", kServes), "b ends OK"));
}

TEST_F(InterceptorTest, ACallWhoseHandlerDefersAndReturnsAnErrorEndsOnce) {
  constexpr size_t kCalls = 200;
  server_a->ends = false;
  {
    TestServer server(Intercepted());
    Box<DeferredCall> deferred;
    server.probe.on_act = [&](ServerContext& context, uint64_t) {
      deferred.Put(context.Defer());
      return absl::AbortedError("after all");
    };
    std::thread finisher([&] {
      for (size_t i = 0; i < kCalls; ++i) deferred.Take().Finish(absl::AbortedError("deferred"));
    });
    const auto channel = Connect(server);
    for (size_t i = 0; i < kCalls; ++i) {
      EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kAborted));
    }
    finisher.join();
  }
  EXPECT_EQ(served.lines().size(), 3 * kCalls);
}

TEST_F(InterceptorTest, ARequestThatTheExecutorDropsDoesNotBegin) {
  ServerOptions options = Intercepted();
  options.executor = [](absl::AnyInvocable<void()>) {};
  TestServer server(std::move(options));
  EXPECT_THAT(SendAct(Connect(server), 1).Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(served.lines(), IsEmpty());
}

TEST_F(InterceptorTest, ACallThatItsCallerGaveUpEndsOnceThePollerIsFree) {
  TestServer server;
  const auto runtime = *transport::Runtime::Create(TestScheme(), {.pollers = 1});
  client_a->ends = false;
  const auto channel = Connect(server, OnRuntime(runtime));
  const auto holder = server.Connect(OnRuntime(runtime));
  absl::Notification holds, go_on;
  SendAct(holder, 1).Then([&](auto) {
    holds.Notify();
    go_on.WaitForNotificationWithTimeout(kLong);
  });
  holds.WaitForNotification();
  // Send() looks at the deadline, too.
  EXPECT_THAT(SendAct(channel, 2, {.timeout = absl::Seconds(2)}).Wait().status(),
              HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(made.lines().size(), 2u);
  go_on.Notify();
  EXPECT_EQ(made.WaitFor(3).size(), 3u);
  EXPECT_THAT(SendAct(holder, 3).Wait(), IsOk());
  EXPECT_EQ(made.lines().size(), 3u);
}

TEST_F(InterceptorTest, ACallIsCountedBeforeItsOnEndRuns) {
  TestServer server;
  const auto count = [&] {
    uint64_t calls = 0;
    for (const auto& each : internal::OutgoingCalls::Process().Look(1 << 20).totals) {
      if (each.target == server.uri) calls += each.ended.latency.count();
    }
    return calls;
  };
  Box<uint64_t> counted;
  client_a->on_end = [&] { counted.Put(count()); };
  const uint64_t before = count();  // Another server may have had the address.
  const auto channel = Connect(server);
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_EQ(counted.Take(), before + 1);
}

// ---- The end of what they use.

TEST_F(InterceptorTest, OnEndOfAnExecutorsHandlerMayNotWaitForTheServer) {
  ServerOptions options = Intercepted();
  std::vector<std::thread> threads;
  options.executor = [&](absl::AnyInvocable<void()> handler) { threads.emplace_back(std::move(handler)); };
  TestServer server(std::move(options));
  absl::Status shut_down;
  server_a->on_end = [&] { shut_down = server.server.Shutdown(absl::InfiniteFuture()); };
  EXPECT_THAT(SendAct(Connect(server), 1).Wait(), IsOk());
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(shut_down, HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_F(InterceptorTest, TheEndOfAServerWaitsForOnEnd) {
  ServerOptions options = Intercepted();
  options.handler_grace = kExpires;
  auto server = std::make_unique<TestServer>(std::move(options));
  server->probe.on_act = server->held.Handler();
  auto pending = SendAct(Connect(*server), 1);
  DeferredCall deferred = server->held.Take();
  absl::Notification ending, ended;
  bool too_early = false;
  constexpr absl::Duration kExpiresUnlessTooEarly = absl::Milliseconds(300);
  server_a->on_end = [&] {
    ending.Notify();
    too_early = ended.WaitForNotificationWithTimeout(kExpiresUnlessTooEarly);
  };
  std::thread finisher([&] { deferred.Finish(); });
  ending.WaitForNotification();
  server.reset();
  ended.Notify();
  finisher.join();
  EXPECT_FALSE(too_early);
}

TEST_F(InterceptorTest, OnEndMayCallAndMayDestroyTheChannel) {
  TestServer server;
  const auto other = server.Connect();
  Box<absl::Status> called;
  std::shared_ptr<Channel> channel = Connect(server);
  client_b->on_end = [&] {
    channel.reset();
    SendAct(other, 1).Then([&](const auto& reply) { called.Put(reply.status()); });
  };
  auto pending = SendAct(channel, 1);
  EXPECT_THAT(pending.Wait().status(), IsOk());
  EXPECT_THAT(called.Take(), IsOk());
  EXPECT_EQ(made.lines().size(), 4u);
}

TEST_F(InterceptorTest, NoOnCancelCallbackStartsAfterOnEnd) {
  ServerOptions options = Intercepted();
  options.pollers = 1;
  TestServer server(std::move(options));
  std::atomic<bool> ended{false}, late{false};
  ServerContext* cancelled = nullptr;
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    if (number == 2) return absl::OkStatus();
    cancelled = &context;
    context.OnCancel([&] { late = ended.load(); });
    return server.held.Handler()(context, number);
  };
  const auto channel = server.Connect();
  auto pending = SendAct(channel, 1);
  DeferredCall deferred = server.held.Take();
  server_b->on_end = [&] {
    if (ended.exchange(true)) return;  // The end of the second call.
    pending.Cancel();
    EXPECT_TRUE(Eventually([&] { return cancelled->cancelled(); }));
    EXPECT_THAT(SendAct(channel, 2).Wait(), IsOk());  // The turn in which the callback would run is over.
  };
  deferred.Finish();
  EXPECT_FALSE(late);
}

// ---- Where they run.

TEST_F(InterceptorTest, TheTimeThatBeginTakesCounts) {
  TestServer server;
  transport::TestClock clock;
  const auto runtime = *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/false, clock);
  auto channel = Connect(server, OnRuntime(runtime));
  client_a->on_begin = [&](const Interceptor::Beginning&) {
    clock.Advance(absl::Seconds(3));
    return absl::OkStatus();
  };
  for (const CallOptions& options :
       {CallOptions{.deadline = clock.Now() + absl::Seconds(2)}, CallOptions{.timeout = absl::Seconds(2)}}) {
    EXPECT_THAT(SendAct(channel, 1, options).Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  }
  EXPECT_EQ(server.probe.runs, 0);
  channel.reset();
  DriveToTheEnd(runtime);
}

TEST_F(InterceptorTest, AServiceIsNotCalledWhoseChannelBeginDestroys) {
  class ListenerImpl final : public probe::ListenerService {
   public:
    absl::Status Notify(ServerContext&, probe::Listener::NotifyParams::Reader,
                        probe::Listener::NotifyResults::Builder) override {
      ADD_FAILURE() << "it may be destroyed";
      return absl::OkStatus();
    }
  } listener;
  TestServer server;
  ChannelOptions options;
  options.services = {&listener};
  std::shared_ptr<Channel> channel = Connect(server, std::move(options));
  const std::shared_ptr<Channel> peer = WayBack(server, channel);
  absl::Notification destroyed;
  client_a->on_begin = [&](const Interceptor::Beginning&) {
    channel.reset();
    destroyed.Notify();
    return absl::OkStatus();
  };
  EXPECT_THAT(probe::ListenerStub(peer).Notify().Send().Wait().status(),
              HasCode(absl::StatusCode::kUnavailable));
  destroyed.WaitForNotification();
}

// What holds the poller is the callback, not the interceptor that has run inside it.
TEST_F(InterceptorTest, ACallbackKeepsItsNameAfterAnOnEndInsideIt) {
  const auto runtime = *transport::Runtime::Create(TestScheme(), {.pollers = 1});
  ServerOptions options = Intercepted();
  options.runtime = runtime;
  TestServer server(std::move(options));
  TestServer other;
  server.probe.on_act = server.held.Handler();
  auto pending = SendActAgain(server.Connect(), 1);
  DeferredCall deferred = server.held.Take();
  const auto channel = other.Connect(OnRuntime(runtime));
  absl::Notification holds, go_on;
  SendAct(channel, 1).Then([&](auto) {
    deferred.Finish();
    holds.Notify();
    go_on.WaitForNotificationWithTimeout(kLong);
  });
  holds.WaitForNotification();
  EXPECT_EQ(served.lines().size(), 4u);
  const absl::Status late = SendAct(channel, 2, {.timeout = absl::Seconds(2)}).Wait().status();
  EXPECT_THAT(std::string(late.message()), HasSubstr("by the callback of probe.capnp:Probe.act"));
  go_on.Notify();
  EXPECT_THAT(pending.Wait(), IsOk());
}

TEST_F(InterceptorTest, NothingOfThemRunsInAChildAfterFork) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer has no threads after fork()";
#endif
  const auto runtime = *transport::Runtime::Create(TestScheme(), {.pollers = 1});
  ServerOptions options = Intercepted();
  options.runtime = runtime;
  TestServer server(std::move(options));
  TestServer other;
  server.probe.on_act = server.held.Handler();
  const auto channel = Connect(server, OnRuntime(runtime));
  auto pending = SendAct(channel, 1);
  DeferredCall deferred = server.held.Take();
  auto unsent = std::make_unique<Call<probe::Probe::ActParams, probe::Probe::ActResults>>(
      probe::ProbeStub(channel).Act());
  // A thread that the child does not have holds the poller, so the child can post, but not send.
  absl::Notification holds, go_on;
  SendAct(other.Connect(OnRuntime(runtime)), 1).Then([&](auto) {
    holds.Notify();
    go_on.WaitForNotificationWithTimeout(kLong);
  });
  holds.WaitForNotification();
  EXPECT_TRUE(InChild([&] {
    const absl::Status sent = unsent->Send().Wait().status();
    deferred.Finish();
    return absl::IsFailedPrecondition(sent) && made.lines().size() == 2 && served.lines().size() == 2;
  }));
  go_on.Notify();
  deferred.Finish();
  EXPECT_THAT(pending.Wait(), IsOk()) << "the parent was harmed";
}

TEST_F(InterceptorTest, ManyThreadsCallAtOnce) {
  TestServer server(Intercepted());
  const auto channel = Connect(server);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 50; ++call) EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made.lines().size(), 4u * 8 * 50);
  EXPECT_EQ(served.WaitFor(4 * 8 * 50).size(), 4u * 8 * 50);
}

}  // namespace
}  // namespace hawser
