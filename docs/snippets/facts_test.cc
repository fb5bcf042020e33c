// Statements of docs/guide.md that no other test covers.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "docs/snippets/page_store.h"
#include "docs/snippets/work_pool.h"

namespace pages {
namespace {

// The deadline of what is expected to expire.
constexpr absl::Duration kExpires = absl::Milliseconds(20);

// Its reads wait until Answer().
class HoldingPages : public PlainPages {
 public:
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader,
                    Pages::ReadResults::Builder reply) override {
    reply.setPage(Bytes("late"));
    held_ = context.Defer();
    arrived.Notify();
    return absl::OkStatus();
  }
  void Answer() { held_.Finish(); }

  absl::Notification arrived;

 private:
  hawser::DeferredCall held_;
};

TEST(FactsTest, ACallGoesOnWithoutItsChannelAndStub) {
  HoldingPages store;
  hawser::Server server;
  auto stub = std::make_unique<PagesStub>(Connect(Serve(server, store)));
  auto pending = stub->Read().Send();
  stub.reset();
  store.arrived.WaitForNotification();
  store.Answer();
  const auto reply = pending.Wait();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(Text((*reply)->getPage()), "late");
}

TEST(FactsTest, ACallbackMayDestroyItsChannel) {
  PlainPages store;
  hawser::Server server;
  auto channel = Connect(Serve(server, store));
  absl::Notification done;
  PagesStub(channel).Read().Send().Then([&](absl::StatusOr<hawser::Reply<Pages::ReadResults>>) {
    channel.reset();
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_EQ(channel, nullptr);
}

TEST(FactsTest, TheTimeoutOfACallCountsFromSend) {
  PlainPages store;
  hawser::Server server;
  PagesStub stub(Connect(Serve(server, store)));
  auto call = stub.Read({.timeout = absl::Seconds(5)});
  auto late = stub.Read({.deadline = absl::Now() + kExpires});
  EXPECT_TRUE(Eventually([passed = absl::Now() + 2 * kExpires] { return absl::Now() > passed; }));
  EXPECT_EQ(call.Send().Wait().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(late.Send().Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
}

// Records the order in which its writes run.
class NotingPages : public PlainPages {
 public:
  absl::Status Write(hawser::ServerContext&, Pages::WriteParams::Reader request,
                     Pages::WriteResults::Builder) override {
    absl::MutexLock lock(&mutex_);
    order_.push_back(request.getNumber());
    return absl::OkStatus();
  }
  std::vector<uint64_t> order() {
    absl::MutexLock lock(&mutex_);
    return order_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<uint64_t> order_ ABSL_GUARDED_BY(mutex_);
};

TEST(FactsTest, AShortRequestOvertakesALongOne) {
  NotingPages store;
  hawser::Server server;
  PagesStub stub(Connect(Serve(server, store)));
  auto large = stub.Write(), small = stub.Write();
  large.request().setNumber(1);
  large.request().initPage(64 << 20);
  small.request().setNumber(2);
  auto of_large = large.Send(), of_small = small.Send();
  EXPECT_TRUE(of_large.Wait().ok());
  EXPECT_TRUE(of_small.Wait().ok());
  EXPECT_EQ(store.order(), (std::vector<uint64_t>{2, 1}));
}

TEST(FactsTest, ShutdownOnAnExecutorWaitsOutItsDeadline) {
  class EndingPages : public PlainPages {
   public:
    absl::Status Read(hawser::ServerContext&, Pages::ReadParams::Reader,
                      Pages::ReadResults::Builder) override {
      ended = server->Shutdown(absl::Now() + kExpires);
      done.Notify();
      return absl::OkStatus();
    }
    hawser::Server* server = nullptr;
    absl::Status ended;
    absl::Notification done;
  };
  EndingPages store;
  WorkPool pool(1);
  hawser::Server server({.executor = [&pool](auto handler) { pool.Add(std::move(handler)); }});
  store.server = &server;
  PagesStub stub(Connect(Serve(server, store)));
  EXPECT_EQ(stub.Read().Send().Wait().status().code(), absl::StatusCode::kUnavailable);
  store.done.WaitForNotification();
  EXPECT_EQ(store.ended.code(), absl::StatusCode::kDeadlineExceeded) << store.ended;
}

TEST(FactsTest, AServerThatDrainsHasGivenUpItsPort) {
  HoldingPages store;
  WorkPool pool(1);
  hawser::Server server;
  const std::string uri = Serve(server, store);
  PagesStub stub(Connect(uri));
  auto pending = stub.Read().Send();
  store.arrived.WaitForNotification();
  absl::Status drained;
  absl::BlockingCounter ended(1);
  pool.Add([&] {
    drained = server.Shutdown(absl::Now() + absl::Minutes(1));
    ended.DecrementCount();
  });
  PlainPages next_store;
  hawser::Server next;
  ASSERT_TRUE(next.AddService(&next_store).ok());
  EXPECT_TRUE(Eventually([&] { return next.Listen(uri).ok(); }));
  store.Answer();
  EXPECT_TRUE(pending.Wait().ok());
  ended.Wait();
  EXPECT_TRUE(drained.ok()) << drained;
}

}  // namespace
}  // namespace pages
