// Snippets of docs/guide.md: handlers and callbacks that take long.

#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/synchronization/notification.h"
#include "docs/snippets/page_store.h"
#include "docs/snippets/work_pool.h"
#include "gmock/gmock.h"
#include "hawser/rpc/runtime.h"

namespace pages {
namespace {

TEST(ThreadsTest, AnExecutorRunsTheHandlers) {
  PlainPages store;
  // snippet: executor
  WorkPool pool(8);  // Declared before the server, and so destroyed after it.
  hawser::ServerOptions options;
  options.executor = [&pool](absl::AnyInvocable<void()> handler) { pool.Add(std::move(handler)); };
  hawser::Server server(std::move(options));
  // end of snippet
  PagesStub stub(Connect(Serve(server, store)));
  EXPECT_TRUE(Write(stub, 1, "one").ok());
  EXPECT_EQ(Read(stub, 1), "one");
}

class DiskPages : public PlainPages {
 public:
  // snippet: defer
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    disk_.Add([this, call = context.Defer(), request, reply]() mutable {
      call.Finish(ReadFromDisk(request.getNumber(), reply));
    });
    return absl::OkStatus();
  }
  // end of snippet

 private:
  absl::Status ReadFromDisk(uint64_t number, Pages::ReadResults::Builder reply) {
    reply.setPage(Bytes(std::to_string(number)));
    return absl::OkStatus();
  }

  WorkPool disk_{1};
};

TEST(ThreadsTest, ADeferredCallIsAnsweredFromAnotherThread) {
  DiskPages store;
  hawser::Server server;
  PagesStub stub(Connect(Serve(server, store)));
  EXPECT_EQ(Read(stub, 12), "12");
}

TEST(ThreadsTest, ACallbackHandsTheReplyOn) {
  PlainPages store;
  hawser::Server server;
  PagesStub stub(Connect(Serve(server, store)));
  ASSERT_TRUE(Write(stub, 1, "one").ok());
  std::string page;
  absl::Notification parsed;
  const auto parse = [&](const hawser::Reply<Pages::ReadResults>& reply) {
    page = Text(reply->getPage());
    parsed.Notify();
  };
  WorkPool parsers(2);
  auto call = stub.Read();
  call.request().setNumber(1);
  // snippet: then
  call.Send().Then([&parsers, parse](absl::StatusOr<hawser::Reply<Pages::ReadResults>> reply) {
    if (!reply.ok()) return;
    parsers.Add([parse, reply = *std::move(reply)] { parse(reply); });
  });
  // end of snippet
  parsed.WaitForNotification();
  EXPECT_EQ(page, "one");
}

absl::StatusOr<std::shared_ptr<hawser::Channel>> ConnectWithOwnPoller(const std::string& uri) {
  // snippet: runtime
  absl::StatusOr<std::shared_ptr<hawser::Runtime>> runtime =
      hawser::Runtime::Create("tcp", {.pollers = 1,
                                      .poller = {.mode = hawser::PollingMode::kSpin},
                                      .pool = {.limit_bytes = size_t{256} << 20}});
  if (!runtime.ok()) return runtime.status();
  hawser::ChannelOptions options;
  options.runtime = *runtime;
  return hawser::Channel::Connect(uri, std::move(options));
  // end of snippet
}

TEST(ThreadsTest, AChannelMayHaveAPollerOfItsOwn) {
  PlainPages store;
  hawser::Server server;
  const auto channel = ConnectWithOwnPoller(Serve(server, store));
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_TRUE(Write(PagesStub(*channel), 1, "one").ok());
}

absl::StatusOr<std::shared_ptr<hawser::Channel>> ConnectFourTimes(const std::string& uri) {
  // snippet: connections
  hawser::ChannelOptions options;
  options.connections = 4;
  return hawser::Channel::Connect(uri, std::move(options));
  // end of snippet
}

TEST(ThreadsTest, AChannelMayHaveSeveralConnections) {
  PlainPages store;
  hawser::Server server;
  const auto channel = ConnectFourTimes(Serve(server, store));
  ASSERT_TRUE(channel.ok()) << channel.status();
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Write(PagesStub(*channel), 1, "one").ok());
}

void Log(const std::string& line) { EXPECT_THAT(line, ::testing::StartsWith("spins for ")); }

TEST(ThreadsTest, APollerTellsWhatItDecided) {
  PlainPages store;
  hawser::Server server;
  const auto channel = Connect(Serve(server, store));
  // snippet: poller_stats
  const hawser::PollerStats stats = channel->poller_stats();
  Log(ToString(stats));  // "spins for 16us: 8041 spins paid, 3 were in vain, ..."
  // end of snippet
}

}  // namespace
}  // namespace pages
