// Snippets of docs/guide.md: deadlines and cancellation.

#include <string>

#include "absl/time/clock.h"
#include "docs/snippets/page_store.h"
#include "hawser/rpc/task.h"

namespace pages {
namespace {

// The deadline of calls that nothing answers.
constexpr absl::Duration kExpires = absl::Milliseconds(20);

TEST(DeadlinesTest, ACallHasItsOwnTimeout) {
  PlainPages store;
  hawser::Server server;
  PagesStub pages(Connect(Serve(server, store)));
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  auto soon = pages.Read({.timeout = kExpires});
  auto until = pages.Read({.deadline = deadline});
  auto patient = pages.Read({.timeout = absl::Hours(24 * 365)});
  EXPECT_EQ(until.Send().Wait().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(patient.Send().Wait().status().code(), absl::StatusCode::kNotFound);
}

class ScanningPages : public PlainPages {
 public:
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    // snippet: cancelled
    for (uint64_t block = 0; block < kBlocks; ++block) {
      if (context.cancelled()) return absl::CancelledError("the caller has stopped waiting");
      if (Holds(block, request.getNumber())) return ReadBlock(block, reply);
    }
    // end of snippet
    return absl::NotFoundError("no block holds the page");
  }

 private:
  static constexpr uint64_t kBlocks = UINT64_MAX;
  bool Holds(uint64_t block, uint64_t number) { return number == block; }
  absl::Status ReadBlock(uint64_t block, Pages::ReadResults::Builder reply) {
    reply.setPage(Bytes(std::to_string(block)));
    return absl::OkStatus();
  }
};

TEST(DeadlinesTest, AScanEndsWithTheCallersDeadline) {
  ScanningPages store;
  hawser::Server server;
  PagesStub stub(Connect(Serve(server, store)));
  EXPECT_EQ(Read(stub, 3), "3");
  auto call = stub.Read({.timeout = kExpires});
  call.request().setNumber(UINT64_MAX);  // In no block.
  EXPECT_EQ(call.Send().Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
}  // ~Server waits for the handler.

class QueueingPages : public PlainPages {
 public:
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    // snippet: on_cancel
    const uint64_t ticket = queue_.Add(context.Defer(), request, reply);
    context.OnCancel([this, ticket] { queue_.Remove(ticket); });
    return absl::OkStatus();
    // end of snippet
  }

  size_t waiting() const { return queue_.size(); }

 private:
  class Queue {
   public:
    uint64_t Add(hawser::DeferredCall call, Pages::ReadParams::Reader, Pages::ReadResults::Builder) {
      absl::MutexLock lock(&mutex_);
      calls_[++last_] = std::move(call);
      return last_;
    }
    void Remove(uint64_t ticket) {
      hawser::DeferredCall removed;  // Answers after the lock.
      absl::MutexLock lock(&mutex_);
      removed = std::move(calls_[ticket]);
      calls_.erase(ticket);
    }
    size_t size() const {
      absl::MutexLock lock(&mutex_);
      return calls_.size();
    }

   private:
    mutable absl::Mutex mutex_;
    uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
    std::map<uint64_t, hawser::DeferredCall> calls_ ABSL_GUARDED_BY(mutex_);
  };

  Queue queue_;
};

TEST(DeadlinesTest, WhatIsCancelledLeavesTheQueue) {
  QueueingPages store;
  hawser::Server server;
  PagesStub pages(Connect(Serve(server, store)));
  auto call = pages.Read();
  hawser::PendingCall<Pages::ReadResults> pending = call.Send();
  pending.Then([](absl::StatusOr<hawser::Reply<Pages::ReadResults>>) {});
  pending.Cancel();
  auto late = pages.Read({.timeout = kExpires});
  EXPECT_EQ(late.Send().Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Eventually([&] { return store.waiting() == 0; }));
}

class CachingPages : public PlainPages {
 public:
  explicit CachingPages(std::shared_ptr<hawser::Channel> backend) : backend_(std::move(backend)) {}

  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    return Ask(context.Defer(), request, reply);
  }

 private:
  hawser::Task Ask(hawser::DeferredCall deferred, Pages::ReadParams::Reader request,
                   Pages::ReadResults::Builder reply) {
    hawser::ServerContext& context = deferred.context();
    // snippet: for
    hawser::CallOptions options = hawser::CallOptions::For(context);
    options.timeout = absl::Seconds(2);  // The earlier of this and the caller's deadline counts.
    auto call = backend_.Read(options);
    // end of snippet
    call.request().setNumber(request.getNumber());
    auto page = co_await call.Send();
    if (!page.ok()) co_return page.status();
    reply.setPage((*page)->getPage());
    co_return absl::OkStatus();
  }

  PagesStub backend_;
};

TEST(DeadlinesTest, TheCallsOfAHandlerEndWithItsOwn) {
  QueueingPages silent;
  hawser::Server back;
  const std::string uri = Serve(back, silent);
  CachingPages cache(Connect(uri));
  hawser::Server front;
  PagesStub stub(Connect(Serve(front, cache)));
  auto call = stub.Read({.timeout = kExpires});
  EXPECT_EQ(call.Send().Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Eventually([&] { return silent.waiting() == 0; }));
}

}  // namespace
}  // namespace pages
