// A caller that cancels its call gets one result, and the handler is notified.

#include <thread>
#include <vector>

#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

TEST(CancelTest, TheCallerGetsCancelledAndTheHandlerHears) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  DeferredCall deferred = server.held.Take();
  EXPECT_FALSE(deferred.context().cancelled());
  Box<bool> heard;
  deferred.context().OnCancel([&] { heard.Put(true); });
  call.Cancel();
  const absl::Status status = call.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_TRUE(WasSent(status));
  EXPECT_TRUE(heard.Take());
  EXPECT_TRUE(deferred.context().cancelled());
}

TEST(CancelTest, OnCancelAfterTheFactRunsSoon) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  DeferredCall deferred = server.held.Take();
  call.Cancel();
  ASSERT_TRUE(Eventually([&] { return deferred.context().cancelled(); }));
  Box<bool> heard;
  deferred.context().OnCancel([&] { heard.Put(true); });
  EXPECT_TRUE(heard.Take());
}

TEST(CancelTest, OnCancelMayFinishTheCall) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  auto deferred = std::make_shared<DeferredCall>(server.held.Take());
  deferred->context().OnCancel([deferred] { deferred->Finish(absl::CancelledError("as you wish")); });
  call.Cancel();
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_TRUE(Eventually([&] { return server.server.stats().calls_running == 0; }));
}

TEST(CancelTest, OnCancelDoesNotRunAfterTheCallHasFinished) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  std::atomic<bool> heard{false};
  {
    const auto channel = server.Connect();
    auto call = SendAct(channel, 1);
    DeferredCall deferred = server.held.Take();
    deferred.context().OnCancel([&] { heard = true; });
    deferred.Finish();
    EXPECT_THAT(call.Wait(), IsOk());
  }
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  EXPECT_FALSE(heard);
}

TEST(CancelTest, AnotherThreadMayCancelWhatThisOneWaitsFor) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1, {.timeout = kLong});
  std::thread canceller([&] {
    DeferredCall deferred = server.held.Take();
    call.Cancel();
    EXPECT_TRUE(Eventually([&] { return deferred.context().cancelled(); }));
  });
  EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kCancelled));
  canceller.join();
}

TEST(CancelTest, APendingCallThatIsDroppedIsCancelled) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  { auto call = SendAct(channel, 1); }
  DeferredCall deferred = server.held.Take();
  EXPECT_TRUE(Eventually([&] { return deferred.context().cancelled(); }));
}

TEST(CancelTest, ACallThatWaitsForASlotIsCancelledUnsent) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect({.connection = {.slots = 1}});
  auto first = SendAct(channel, 1);
  DeferredCall deferred = server.held.Take();
  auto second = SendAct(channel, 2);
  second.Cancel();
  const absl::Status status = second.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_FALSE(WasSent(status));
  deferred.Finish();
  EXPECT_THAT(first.Wait(), IsOk());
}

TEST(CancelTest, AfterTheResultItDoesNothing) {
  TestServer server;
  const auto channel = server.Connect();
  auto call = SendAct(channel, 1);
  EXPECT_THAT(call.Wait(), IsOk());
  call.Cancel();
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
}

// The caller of Cancel() may hold a lock that its callback takes.
TEST(CancelTest, TheCallbackDoesNotRunInsideCancel) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  absl::Mutex mutex;
  Box<absl::Status> result;
  auto call = SendAct(channel, 1);
  call.Then([&](auto reply) {
    absl::MutexLock lock(&mutex);
    result.Put(reply.status());
  });
  DeferredCall deferred = server.held.Take();
  {
    absl::MutexLock lock(&mutex);
    call.Cancel();
  }
  EXPECT_THAT(result.Take(), HasCode(absl::StatusCode::kCancelled));
  absl::MutexLock lock(&mutex);  // Waits until the callback has released it.
}

TEST(CancelTest, WhateverRacesThereIsExactlyOneResult) {
  TestServer server({.pollers = 2});
  server.probe.on_act = [](ServerContext& context, uint64_t number) {
    if (number % 3 == 0) {
      DeferredCall deferred = context.Defer();
      if (number % 2 == 0) deferred.Finish(absl::AbortedError("no"));
    }
    return absl::OkStatus();
  };
  constexpr absl::Duration kExpiresOrNot = absl::Microseconds(50);
  constexpr int kCalls = 1500;
  std::vector<std::atomic<int>> results(2 * kCalls);
  std::atomic<int> total{0};
  {
    const auto channel = server.Connect({.connection = {.slots = 8}});
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kCalls; ++i) {
          const int number = t * kCalls + i;
          auto call = SendAct(channel, number, {.timeout = kExpiresOrNot * (1 + number % 10)});
          call.Then([&, number](auto) {
            ++results[number];
            ++total;
          });
          if (number % 5 == 0) call.Cancel();
          if (number == kCalls + kCalls / 2) channel->Close();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_TRUE(Eventually([&] { return total == 2 * kCalls; }));
  for (const auto& count : results) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace hawser
