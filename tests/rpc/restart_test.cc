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

// Callers that call one address repeatedly until Stop().
class Callers {
 public:
  Callers(const std::string& uri, int threads, bool idempotent, bool share_a_channel) {
    const auto make_channel = [uri] {
      return *Channel::Create(uri,
                              {.backoff_min = absl::Milliseconds(1), .backoff_max = absl::Milliseconds(10)});
    };
    const std::shared_ptr<Channel> shared = share_a_channel ? make_channel() : nullptr;
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

// The parameters: whether the method is idempotent, and whether the callers share a channel.
class RestartTest : public testing::TestWithParam<std::tuple<bool, bool>> {};

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

INSTANTIATE_TEST_SUITE_P(Methods, RestartTest, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& param) {
                           return absl::StrCat(std::get<0>(param.param) ? "Idempotent" : "RunOnce",
                                               std::get<1>(param.param) ? "OneChannel" : "ChannelEach");
                         });

}  // namespace
}  // namespace hawser
