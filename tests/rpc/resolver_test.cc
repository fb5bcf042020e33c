// The resolver uses few threads, however long a name server is silent.

#include "hawser/rpc/client/resolver.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::internal {
namespace {

// A name server that does not answer until the test lets it.
class SilentServer {
 public:
  Resolver::LookUp LookUp() {
    return [this](const transport::Uri& uri) -> Resolver::Addresses {
      absl::MutexLock lock(&mutex_);
      asked_.push_back(uri.host);
      most_ = std::max(most_, ++running_);
      changed_.SignalAll();
      while (!answers_) changed_.Wait(&mutex_);
      --running_;
      return std::vector<SocketAddress>{};
    };
  }
  void Answer() {
    absl::MutexLock lock(&mutex_);
    answers_ = true;
    changed_.SignalAll();
  }
  void AwaitRunning(size_t count) {
    absl::MutexLock lock(&mutex_);
    while (running_ != count) changed_.Wait(&mutex_);
  }
  size_t most() {
    absl::MutexLock lock(&mutex_);
    return most_;
  }
  std::vector<std::string> asked() {
    absl::MutexLock lock(&mutex_);
    return asked_;
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar changed_;  // ThreadSanitizer understands it, but not Mutex::Await().
  bool answers_ ABSL_GUARDED_BY(mutex_) = false;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t most_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> asked_ ABSL_GUARDED_BY(mutex_);
};

struct CountingClient : Resolver::Client {
  void OnLookedUp(const Resolver::Addresses& addresses) override { told += addresses.ok() ? 1 : 0; }
  std::atomic<int> told{0};
};

TEST(ResolverTest, AttemptsForANameThatHangsShareOneThread) {
  SilentServer server;
  std::vector<std::shared_ptr<CountingClient>> clients;
  {
    Resolver resolver(server.LookUp());
    for (int i = 0; i < 100; ++i) {
      clients.push_back(std::make_shared<CountingClient>());
      ASSERT_THAT(resolver.Start({"tcp", "kv1", 7470}, clients.back()), IsOk());
    }
    server.AwaitRunning(1);
    server.Answer();
  }
  EXPECT_EQ(server.most(), 1u);
  EXPECT_EQ(server.asked(), std::vector<std::string>{"kv1"});
  for (const auto& client : clients) EXPECT_EQ(client->told, 1);
}

TEST(ResolverTest, NamesThatHangTakeABoundedNumberOfThreads) {
  SilentServer server;
  std::vector<std::shared_ptr<CountingClient>> clients;
  {
    Resolver resolver(server.LookUp());
    for (int i = 0; i < 100; ++i) {
      clients.push_back(std::make_shared<CountingClient>());
      ASSERT_THAT(resolver.Start({"tcp", absl::StrCat("kv", i), 7470}, clients.back()), IsOk());
    }
    server.AwaitRunning(Resolver::kThreadsMax);
    server.Answer();
  }
  EXPECT_EQ(server.most(), Resolver::kThreadsMax);
  EXPECT_EQ(server.asked().size(), 100u);
  for (const auto& client : clients) EXPECT_EQ(client->told, 1);
}

TEST(ResolverTest, NameThatNobodyWaitsForAnyMoreIsNotLookedUp) {
  SilentServer server;
  std::vector<std::shared_ptr<CountingClient>> clients;
  {
    Resolver resolver(server.LookUp());
    for (size_t i = 0; i < Resolver::kThreadsMax; ++i) {
      clients.push_back(std::make_shared<CountingClient>());
      ASSERT_THAT(resolver.Start({"tcp", absl::StrCat("kv", i), 7470}, clients.back()), IsOk());
    }
    server.AwaitRunning(Resolver::kThreadsMax);
    auto gone = std::make_shared<CountingClient>();
    ASSERT_THAT(resolver.Start({"tcp", "gone", 7470}, gone), IsOk());
    gone.reset();
    clients[0].reset();
    server.Answer();
  }
  EXPECT_EQ(server.asked().size(), Resolver::kThreadsMax);
}

TEST(ResolverTest, ChildAfterForkHasItsOwn) {
  Resolver* const of_parent = &Resolver::Process();
  EXPECT_TRUE(InChild([&] { return &Resolver::Process() != of_parent; }));
  EXPECT_EQ(&Resolver::Process(), of_parent);
}

}  // namespace
}  // namespace hawser::internal
