// Servers drain and others replace them. No call is lost.

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

enum class Channels { kOneForEach, kShared, kSharedOfThreeConnections };

// Callers that call one address repeatedly until Stop().
class Callers {
 public:
  Callers(const std::string& uri, int threads, bool idempotent, Channels channels) {
    const auto make_channel = [uri, channels] {
      return *Channel::Create(uri, {.backoff_min = absl::Milliseconds(1),
                                    .backoff_max = absl::Milliseconds(10),
                                    .connections = channels == Channels::kSharedOfThreeConnections ? 3 : 1});
    };
    const std::shared_ptr<Channel> shared = channels != Channels::kOneForEach ? make_channel() : nullptr;
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, make_channel, shared, idempotent] {
        const std::shared_ptr<Channel> channel = shared != nullptr ? shared : make_channel();
        const CallOptions patient = {.timeout = kLong, .wait_for_ready = true};
        while (!stop_) {
          const absl::Status status = idempotent ? SendActAgain(channel, 1, patient).Wait().status()
                                                 : SendAct(channel, 1, patient).Wait().status();
          if (status.ok()) {
            ++done;
            continue;
          }
          absl::MutexLock lock(&mutex_);
          ++failures_[status.ToString()];
        }
      });
    }
  }
  ~Callers() { Stop(); }

  // Returns each error, and how often it occurred.
  std::map<std::string, int> Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    absl::MutexLock lock(&mutex_);
    return failures_;
  }

  std::atomic<int> done{0};

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
  absl::Mutex mutex_;
  std::map<std::string, int> failures_;
};

// The parameters: whether the method is idempotent, and the channels of the callers.
class RestartTest : public testing::TestWithParam<std::tuple<bool, Channels>> {};

TEST_P(RestartTest, CallersLoseNoCall) {
  auto server = std::make_unique<TestServer>();
  const std::string uri = server->uri;
  Callers callers(uri, 8, std::get<0>(GetParam()), std::get<1>(GetParam()));
  for (int i = 0; i < 10; ++i) {
    const int before = callers.done;
    ASSERT_TRUE(Eventually([&] { return callers.done >= before + 100; }));
    EXPECT_THAT(server->server.Shutdown(absl::Now() + kLong), IsOk());
    server.reset();
    server = std::make_unique<TestServer>(ServerOptions(), uri);
  }
  for (const auto& [what, times] : callers.Stop()) ADD_FAILURE() << times << " times: " << what;
}

// Its Listen() would fail otherwise, for as long as the old one has calls.
TEST(RestartStatusTest, TheNextServerHasTheStatusPortWhileTheOldOneDrains) {
  auto old = std::make_unique<TestServer>(ServerOptions{.status_address = "127.0.0.1:0"});
  old->probe.on_act = old->held.Handler();
  auto call = SendAct(old->Connect(), 1, {.timeout = kLong});
  DeferredCall held = old->held.Take();
  std::thread draining([&] { EXPECT_THAT(old->server.Shutdown(absl::InfiniteFuture()), IsOk()); });
  ServerOptions options;
  options.status_address = old->server.status_url().substr(std::string("http://").size());
  ProbeServiceImpl probe;
  Server next(options);
  EXPECT_THAT(next.AddService(&probe), IsOk());
  // It may come before the old one gives up its ports.
  EXPECT_TRUE(Eventually([&] { return next.Listen(old->uri).ok(); }));
  EXPECT_EQ(next.status_url(), old->server.status_url());
  EXPECT_THAT(SendAct(*Channel::Connect(old->uri), 1).Wait(), IsOk());
  EXPECT_EQ(probe.runs, 1);
  held.Finish();
  draining.join();
  EXPECT_THAT(call.Wait(), IsOk());
}

TEST(RestartStatusTest, AServerThatWasShutDownTakesNoStatusPort) {
  Server server({.status_address = "127.0.0.1:0"});
  ASSERT_THAT(server.Shutdown(absl::InfiniteFuture()), IsOk());
  EXPECT_THAT(server.Listen(TestUri()).status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(server.status_url(), "");
}

INSTANTIATE_TEST_SUITE_P(Methods, RestartTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Channels::kOneForEach, Channels::kShared,
                                                          Channels::kSharedOfThreeConnections)),
                         [](const auto& param) {
                           const Channels channels = std::get<1>(param.param);
                           return absl::StrCat(std::get<0>(param.param) ? "Idempotent" : "RunOnce",
                                               channels == Channels::kOneForEach ? "ChannelEach"
                                               : channels == Channels::kShared   ? "OneChannel"
                                                                                 : "ThreeConnections");
                         });

}  // namespace
}  // namespace hawser
