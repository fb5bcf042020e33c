// kv watch, when the connection is lost, or the server answers Unavailable: it watches, and lists, again.

#include <stdio.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "examples/kv/kv.rpc.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/examples/kv/unimplemented_kv.h"
#include "hawser/tests/testing/proxy.h"
#include "hawser/tests/testing/status_matchers.h"

namespace kv {
namespace {

using ::hawser::IsOk;

// A server whose watcher has lost changes, and whose first list goes with the connection.
class FakeKv : public UnimplementedKv {
 public:
  explicit FakeKv(bool lost_in_push) : lost_in_push_(lost_in_push) {}

  absl::Status Unwatch(hawser::ServerContext&, KeyValue::UnwatchParams::Reader,
                       KeyValue::UnwatchResults::Builder) override {
    return absl::OkStatus();
  }

  absl::Status Watch(hawser::ServerContext& context, KeyValue::WatchParams::Reader request,
                     KeyValue::WatchResults::Builder reply) override {
    absl::MutexLock lock(&mutex_);
    if (refusals-- > 0) return absl::UnavailableError("not yet");
    watch_ = request.getWatch();
    const bool first = request.getHistory() == 0;
    watched_again_ |= !first;
    reply.setHistory(1);
    reply.setRevision(5);
    reply.setLost(first && !lost_in_push_);
    if (!first) Push(context, 9, /*lost=*/false);
    if (first && lost_in_push_) Push(context, 6, /*lost=*/true);
    return absl::OkStatus();
  }

  absl::Status List(hawser::ServerContext&, KeyValue::ListParams::Reader,
                    KeyValue::ListResults::Builder reply) override {
    absl::MutexLock lock(&mutex_);
    if (!first_list.HasBeenNotified()) first_list.Notify();
    // A list whose answer was lost is asked for again before the watch is.
    if (!watched_again_) return absl::UnavailableError("not now");
    auto entries = reply.initEntries(1);
    entries[0].setKey("a");
    entries[0].setSize(3);
    entries[0].setRevision(4);
    return absl::OkStatus();
  }

  absl::Notification first_list;
  int refusals = 0;  // Of the watch, at first.

 private:
  void Push(hawser::ServerContext& context, uint64_t revision, bool lost) {
    auto call = WatcherStub(context.peer()).Push();
    call.request().setWatch(watch_);
    call.request().setRevision(revision);
    call.request().setLost(lost);
    if (!lost) {
      auto events = call.request().initEvents(1);
      events[0].setKey("b");
      events[0].setSize(2);
      events[0].setRevision(revision);
    }
    call.Send().Then([](const absl::StatusOr<hawser::Reply<Watcher::PushResults>>&) {});
  }

  const bool lost_in_push_;
  absl::Mutex mutex_;
  uint64_t watch_ = 0;
  bool watched_again_ = false;
};

class WatchAgainTest : public ::testing::TestWithParam<bool> {
 protected:
  // What `kv watch` prints until it has a change, and ends.
  static std::string Watch(const std::string& uri) {
    FILE* const watch =
        popen(absl::StrCat("examples/kv/client/kv --target=", uri, " watch p --count=1").c_str(), "r");
    EXPECT_NE(watch, nullptr);
    if (watch == nullptr) return "";
    std::string printed;
    for (int c; (c = fgetc(watch)) != EOF;) printed.push_back(static_cast<char>(c));
    EXPECT_EQ(pclose(watch), 0);
    return printed;
  }

  // Two lists, of which the second one is complete. The second "lost" is behind a revision of the second
  // watch.
  void ExpectSecondList(const std::string& printed) {
    const std::string lost = absl::StrCat("lost\tp\t0\t", GetParam() ? 6 : 5, "\n");
    EXPECT_EQ(printed.substr(0, lost.size()), lost);
    EXPECT_THAT(printed, ::testing::EndsWith("lost\tp\t0\t5\nhave\ta\t3\t4\nput\tb\t2\t9\n"));
  }
};

INSTANTIATE_TEST_SUITE_P(Lost, WatchAgainTest, ::testing::Bool(), [](const auto& lost_in_push) {
  return lost_in_push.param ? "WhileWatching" : "WhenResuming";
});

TEST_P(WatchAgainTest, AListThatWasLostIsMadeAgainOnTheNextConnection) {
  FakeKv service(GetParam());
  hawser::Server server;
  ASSERT_THAT(server.AddService(&service), IsOk());
  const auto uri = server.Listen("tcp://127.0.0.1:0");
  ASSERT_THAT(uri, IsOk());
  hawser::Proxy proxy(*uri);
  std::thread cutter([&] {
    service.first_list.WaitForNotification();
    proxy.Cut();
  });
  const std::string printed = Watch(proxy.uri());
  if (!service.first_list.HasBeenNotified()) service.first_list.Notify();  // Else nobody ends the cutter.
  cutter.join();
  ExpectSecondList(printed);
}

// The server says so itself, and the connection stays.
TEST_P(WatchAgainTest, WhatTheServerAnswersUnavailableToIsAskedForAgain) {
  FakeKv service(GetParam());
  service.refusals = 1;
  hawser::Server server;
  ASSERT_THAT(server.AddService(&service), IsOk());
  const auto uri = server.Listen("tcp://127.0.0.1:0");
  ASSERT_THAT(uri, IsOk());
  ExpectSecondList(Watch(*uri));
}

}  // namespace
}  // namespace kv
