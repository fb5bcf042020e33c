// Snippets of docs/guide.md: a service and its client in one test.

#include <string>

#include "absl/synchronization/notification.h"
#include "docs/snippets/page_store.h"
#include "hawser/rpc/status.h"

namespace pages {
namespace {

class MyPages : public PlainPages {
 public:
  absl::Status Write(hawser::ServerContext& context, Pages::WriteParams::Reader request,
                     Pages::WriteResults::Builder reply) override {
    if (!holds_writes) return PlainPages::Write(context, request, reply);
    held = context.Defer();
    arrived.Notify();
    return absl::OkStatus();
  }

  bool holds_writes = false;
  hawser::DeferredCall held;
  absl::Notification arrived;
};

class PagesTest : public testing::Test {
 protected:
  PagesTest() : stub_(Connect()) {}

  std::shared_ptr<hawser::Channel> Connect() {
    EXPECT_TRUE(server_.AddService(&pages_).ok());
    absl::StatusOr<std::string> uri = server_.Listen("tcp://127.0.0.1:0");  // Any free port.
    if (!uri.ok()) throw std::runtime_error(uri.status().ToString());
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(*uri);
    if (!channel.ok()) throw std::runtime_error(channel.status().ToString());
    return *std::move(channel);
  }

  MyPages pages_;  // The service under test. Outlives the server.
  hawser::Server server_;
  PagesStub stub_;
};

TEST_F(PagesTest, APageThatWasNeverWrittenIsNotFound) {
  EXPECT_EQ(stub_.Read().Send().Wait().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PagesTest, AWriteWhoseServerEndsMayHaveRun) {
  // snippet: failure
  pages_.holds_writes = true;  // Its handler keeps the DeferredCall, and notifies `arrived`.
  auto pending = stub_.Write().Send();
  pages_.arrived.WaitForNotification();
  server_.Shutdown(absl::InfinitePast()).IgnoreError();  // At once: cancels what runs, and disconnects.
  absl::Status status = pending.Wait().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(hawser::WasSent(status));
  pages_.held.Finish();  // Has no effect any more.
  // end of snippet
}

}  // namespace
}  // namespace pages
