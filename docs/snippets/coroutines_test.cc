// Snippets of docs/guide.md: coroutines.

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "docs/snippets/page_store.h"
#include "hawser/rpc/executor.h"
#include "hawser/rpc/first_of.h"
#include "hawser/rpc/sleep.h"
#include "hawser/rpc/task.h"

namespace pages {
namespace {

class MirroredPages : public PlainPages {
 public:
  MirroredPages(std::shared_ptr<hawser::Channel> left, std::shared_ptr<hawser::Channel> right)
      : left_(std::move(left)), right_(std::move(right)) {}

  // snippet: task
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    return ReadBoth(context.Defer(), request.getNumber(), reply);
  }

  hawser::Task ReadBoth(hawser::DeferredCall call, uint64_t number, Pages::ReadResults::Builder reply) {
    const hawser::CallOptions options = hawser::CallOptions::For(call.context());
    auto to_left = left_.Read(options), to_right = right_.Read(options);
    to_left.request().setNumber(number);
    to_right.request().setNumber(number);
    auto from_left = to_left.Send(), from_right = to_right.Send();  // Both are in flight now.
    auto left = co_await from_left;
    if (!left.ok()) co_return left.status();  // Cancels the other one.
    auto right = co_await from_right;
    if (!right.ok()) co_return right.status();
    if ((*left)->getPage() != (*right)->getPage()) co_return absl::DataLossError("the mirrors differ");
    reply.setPage((*left)->getPage());
    co_return absl::OkStatus();
  }
  // end of snippet

 private:
  PagesStub left_, right_;
};

TEST(CoroutinesTest, AHandlerAwaitsTwoCalls) {
  PlainPages left, right;
  hawser::Server left_server, right_server;
  const auto to_left = Connect(Serve(left_server, left));
  const auto to_right = Connect(Serve(right_server, right));
  MirroredPages mirror(to_left, to_right);
  hawser::Server server;
  PagesStub stub(Connect(Serve(server, mirror)));
  ASSERT_TRUE(Write(PagesStub(to_left), 1, "one").ok());
  EXPECT_NE(Read(stub, 1), "one");
  ASSERT_TRUE(Write(PagesStub(to_right), 1, "one").ok());
  EXPECT_EQ(Read(stub, 1), "one");
  ASSERT_TRUE(Write(PagesStub(to_right), 1, "two").ok());
  EXPECT_NE(Read(stub, 1), "one");
}

class SlowPages : public PlainPages {
 public:
  explicit SlowPages(hawser::Executor& executor) : executor_(executor) {}

  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    return ReadSlowly(context.Defer(), request.getNumber(), reply);
  }

  // snippet: sleep_and_schedule
  hawser::Task ReadSlowly(hawser::DeferredCall call, uint64_t number, Pages::ReadResults::Builder reply) {
    absl::Status slept = co_await hawser::Sleep(call.context(), absl::Milliseconds(20));
    if (!slept.ok()) co_return slept;
    absl::Status scheduled = co_await executor_.Schedule();
    if (!scheduled.ok()) co_return scheduled;
    co_return ReadFromDisk(number, reply);  // On a thread of the executor, which it may block.
  }
  // end of snippet

 private:
  absl::Status ReadFromDisk(uint64_t number, Pages::ReadResults::Builder reply) {
    reply.setPage(Bytes(std::to_string(number)));
    return absl::OkStatus();
  }

  hawser::Executor& executor_;
};

TEST(CoroutinesTest, AHandlerSleepsAndMovesToAnExecutor) {
  absl::StatusOr<std::unique_ptr<hawser::Executor>> executor = hawser::Executor::Create({.threads = 2});
  ASSERT_TRUE(executor.ok());
  SlowPages pages(**executor);
  hawser::Server server;
  EXPECT_EQ(Read(PagesStub(Connect(Serve(server, pages))), 7), "7");
}

// Holds its reads until the test ends them.
class HeldPages : public PlainPages {
 public:
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    if (!holds) return PlainPages::Read(context, request, reply);
    held = context.Defer();
    arrived.Notify();
    return absl::OkStatus();
  }

  std::atomic<bool> holds{false};
  hawser::DeferredCall held;
  absl::Notification arrived;
};

class HedgedPages : public PlainPages {
 public:
  HedgedPages(std::shared_ptr<hawser::Channel> left, std::shared_ptr<hawser::Channel> right)
      : left_(std::move(left)), right_(std::move(right)) {}

  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    return ReadHedged(context.Defer(), request.getNumber(), reply);
  }

  // snippet: hedge
  hawser::Task ReadHedged(hawser::DeferredCall call, uint64_t number, Pages::ReadResults::Builder reply) {
    const hawser::CallOptions options = hawser::CallOptions::For(call.context());
    hawser::FirstOf<Pages::ReadResults> first;
    first.Add(SendRead(left_, number, options));
    if (!co_await first.Within(kHedgeAfter)) first.Add(SendRead(right_, number, options));
    auto page = co_await first.Result();
    if (!page.ok()) co_return page.status();
    reply.setPage((*page)->getPage());
    co_return absl::OkStatus();
  }
  // end of snippet

 private:
  static hawser::PendingCall<Pages::ReadResults> SendRead(const PagesStub& pages, uint64_t number,
                                                          const hawser::CallOptions& options) {
    auto call = pages.Read(options);
    call.request().setNumber(number);
    return call.Send();
  }

  PagesStub left_, right_;
  static constexpr absl::Duration kHedgeAfter = absl::Milliseconds(5);
};

TEST(CoroutinesTest, AHedgedReadTakesTheOtherServerIfTheFirstIsSlowOrFails) {
  HeldPages left;
  PlainPages right;
  hawser::Server left_server, right_server;
  const auto to_left = Connect(Serve(left_server, left));
  const auto to_right = Connect(Serve(right_server, right));
  HedgedPages hedged(to_left, to_right);
  hawser::Server server;
  PagesStub stub(Connect(Serve(server, hedged)));
  ASSERT_TRUE(Write(PagesStub(to_right), 1, "right").ok());
  EXPECT_EQ(Read(stub, 1), "right") << "the left one has no such page";
  left.holds = true;
  EXPECT_EQ(Read(stub, 1), "right") << "the left one is slow";
  left.arrived.WaitForNotification();
  EXPECT_TRUE(Eventually([&] { return left.held.context().cancelled(); })) << "nothing waits for it any more";
  left.held.Finish();
}

// A coroutine that nothing waits for. It must report its own result.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Detached Copy(PagesStub from, PagesStub to, uint64_t number, absl::AnyInvocable<void(absl::Status)> done) {
  auto read = from.Read();
  read.request().setNumber(number);
  auto page = co_await read.Send();
  if (!page.ok()) co_return done(page.status());
  auto write = to.Write();
  write.request().setNumber(number);
  write.request().setPage((*page)->getPage());
  done((co_await write.Send()).status());
}

TEST(CoroutinesTest, AClientMayBeACoroutine) {
  PlainPages left, right;
  hawser::Server left_server, right_server;
  PagesStub to_left(Connect(Serve(left_server, left))), to_right(Connect(Serve(right_server, right)));
  ASSERT_TRUE(Write(to_left, 1, "one").ok());
  absl::Notification copied;
  Copy(to_left, to_right, 1, [&](absl::Status status) {
    EXPECT_TRUE(status.ok()) << status;
    copied.Notify();
  });
  copied.WaitForNotification();
  EXPECT_EQ(Read(to_right, 1), "one");
}

}  // namespace
}  // namespace pages
