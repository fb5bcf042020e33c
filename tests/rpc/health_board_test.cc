// Which watches a server keeps, and for how long.

#include "hawser/rpc/services/health_board.h"

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/health.rpc.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Watcher final : public health::HealthWatcherService {
 public:
  absl::Status Changed(ServerContext&, health::HealthWatcher::ChangedParams::Reader request,
                       health::HealthWatcher::ChangedResults::Builder) override {
    told.Put(request.getService().cStr());
    return absl::OkStatus();
  }

  Box<std::string> told;
};

// A watcher that does not know the method, as a client of an older version.
class OldWatcher final : public health::HealthWatcherService {
 public:
  absl::Status Changed(ServerContext&, health::HealthWatcher::ChangedParams::Reader request,
                       health::HealthWatcher::ChangedResults::Builder) override {
    asked.Put(request.getService().cStr());
    return absl::UnimplementedError("what is that?");
  }

  Box<std::string> asked;
};

// A watcher that fails, as often as it is asked.
class FailingWatcher final : public health::HealthWatcherService {
 public:
  absl::Status Changed(ServerContext&, health::HealthWatcher::ChangedParams::Reader request,
                       health::HealthWatcher::ChangedResults::Builder) override {
    asked.Put(request.getService().cStr());
    return absl::InternalError("not now");
  }

  Box<std::string> asked;
};

// Its time passes when the test says so.
class SteppedEnvironment final : public transport::Environment {
 public:
  absl::Time Now() override {
    const absl::MutexLock lock(&own_);
    return now_;
  }
  int64_t NowNs() override { return absl::ToUnixNanos(Now()); }
  bool Await(absl::Mutex& mutex, absl::CondVar& changed, absl::FunctionRef<bool()> condition,
             absl::Time deadline) override {
    {
      const absl::MutexLock lock(&own_);
      ++waits_;
      waiting_ = {&mutex, &changed, deadline};
    }
    while (!condition() && Now() < deadline) changed.Wait(&mutex);
    return condition();
  }

  // Returns once a thread waits that has worked since the last Pass().
  void UntilItWaits() {
    EXPECT_TRUE(Eventually([this] {
      const absl::MutexLock lock(&own_);
      return waits_ > waits_before_;
    }));
  }
  // Until the deadline of the thread that waits.
  void Pass() {
    Waiting waiting;
    EXPECT_TRUE(Eventually([&] {
      const absl::MutexLock lock(&own_);
      waiting = waiting_;
      if (waiting.deadline == absl::InfiniteFuture()) return false;
      waits_before_ = waits_;
      now_ = waiting.deadline;
      return true;
    }));
    const absl::MutexLock lock(waiting.mutex);  // Then it waits, and sees the new time.
    waiting.changed->SignalAll();
  }

 private:
  struct Waiting {
    absl::Mutex* mutex = nullptr;
    absl::CondVar* changed = nullptr;
    absl::Time deadline = absl::InfiniteFuture();
  };

  absl::Mutex own_;  // Acquired after the mutex that Await() is given.
  absl::Time now_ ABSL_GUARDED_BY(own_) = absl::UnixEpoch();
  int waits_ ABSL_GUARDED_BY(own_) = 0;
  int waits_before_ ABSL_GUARDED_BY(own_) = 0;
  Waiting waiting_ ABSL_GUARDED_BY(own_);
};

// The clients of the board are channels that lead to a server of this process, which stands for what clients
// offer over their reverse connections.
class HealthBoardTest : public ::testing::Test {
 protected:
  HealthBoardTest() {
    EXPECT_THAT(server_.AddService(&watcher_), IsOk());
    EXPECT_THAT(server_.AddService(&probe_), IsOk());
    const auto uri = server_.Listen("tcp://0.0.0.0:0");
    EXPECT_THAT(uri, IsOk());
    port_ = uri->substr(uri->rfind(':'));
    board_->Open({"kv"});
  }
  ~HealthBoardTest() override { board_->Close(absl::Now()); }

  // Each address of loopback is a host of its own.
  std::shared_ptr<Channel> Connect(int host = 1) {
    auto channel = Channel::Connect(absl::StrCat("tcp://127.0.0.", host, port_));
    EXPECT_THAT(channel, IsOk());
    return *channel;
  }

  // Watches `count` services, and waits until the board knows that `client` was told.
  absl::Status Watch(const std::shared_ptr<Channel>& client, int count,
                     const std::string& prefix = "shard ") {
    for (int i = 0; i < count; ++i) {
      if (absl::Status status = board_->AddWatch(client, absl::StrCat(prefix, i)); !status.ok())
        return status;
      watcher_.told.Take();
    }
    // Answers come in order, so those of the watcher were before.
    EXPECT_THAT(SendAct(client, 1).Wait(), IsOk());
    return absl::OkStatus();
  }

  Watcher watcher_;
  ProbeServiceImpl probe_;
  Server server_;
  std::string port_;
  const std::shared_ptr<HealthBoard> board_ = std::make_shared<HealthBoard>(transport::Environment::Real());
};

TEST_F(HealthBoardTest, AllHostsTogetherHave4096Watches) {
  std::vector<std::shared_ptr<Channel>> clients;
  for (int host = 1; host <= 4; ++host) {
    for (int i = 0; i < 16; ++i) {
      clients.push_back(Connect(host));
      ASSERT_THAT(Watch(clients.back(), 64), IsOk());
    }
  }
  const auto other = Connect(5);
  const absl::Status refused = board_->AddWatch(other, "kv");
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("4096 watches already, 0 of this host"));
  clients.pop_back();
  EXPECT_THAT(Watch(other, 64), IsOk()) << "those of a client that is gone are free";
  EXPECT_THAT(board_->AddWatch(Connect(5), "kv"), HasCode(absl::StatusCode::kResourceExhausted));
}

// What one client asks for costs no more because others watch.
TEST_F(HealthBoardTest, AWatchCostsTheSameBesideManyClients) {
  std::vector<std::shared_ptr<Channel>> clients;
  // Channels that share a connection are clients of their own.
  const auto fill = [&](const std::shared_ptr<Channel>& connected, int count, int watches_of_each) {
    for (int i = 0; i < count; ++i) {
      clients.push_back(std::make_shared<Channel>(connected->core()));
      for (int watch = 0; watch < watches_of_each; ++watch) {
        ASSERT_THAT(board_->AddWatch(clients.back(), absl::StrCat("shard ", watch)), IsOk());
        watcher_.told.Take();
      }
    }
  };
  // All that a host may have, of few clients: each refusal looks for clients that are gone.
  const auto connected = Connect(1);
  ASSERT_NO_FATAL_FAILURE(fill(connected, 64, 16));
  const auto asking = std::make_shared<Channel>(connected->core());
  // The least time of this thread that a refusal takes.
  const auto cost_ns = [&] {
    int64_t least_ns = INT64_MAX;
    for (int batch = 0; batch < 50; ++batch) {
      timespec start, end;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
      for (int i = 0; i < 20; ++i) {
        const absl::Status refused = board_->AddWatch(asking, "one more");
        EXPECT_THAT(std::string(refused.message()), HasSubstr("1024 of this host"));
      }
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
      least_ns =
          std::min(least_ns, (end.tv_sec - start.tv_sec) * 1'000'000'000 + end.tv_nsec - start.tv_nsec);
    }
    return least_ns;
  };
  const int64_t beside_few_ns = cost_ns();
  // All that the server keeps, and 49 times as many clients.
  for (int host = 2; host <= 4; ++host) ASSERT_NO_FATAL_FAILURE(fill(Connect(host), 1024, 1));
  EXPECT_LT(cost_ns(), 8 * beside_few_ns);
}

// Also its place is free: it may watch more services than the server keeps watches, one after the other.
TEST_F(HealthBoardTest, AWatchThatItsClientDoesNotKnowIsForgotten) {
  OldWatcher old;
  Server of_client;
  ASSERT_THAT(of_client.AddService(&old), IsOk());
  const auto client = *Channel::Connect(*of_client.Listen("tcp://127.0.0.1:0"));
  for (int i = 0; i < 4200; ++i) {
    const std::string service = absl::StrCat("shard ", i);
    absl::Status watched;
    ASSERT_TRUE(Eventually([&] {
      watched = board_->AddWatch(client, service);
      return !absl::IsResourceExhausted(watched);  // The answers to the last ones may be on their way.
    })) << watched;
    ASSERT_EQ(old.asked.Take(), service);
  }
}

TEST_F(HealthBoardTest, AWatchThatItsClientDoesNotKnowIsToldNothingMore) {
  OldWatcher old;
  Server of_client;
  ASSERT_THAT(of_client.AddService(&old), IsOk());
  const auto forgotten = *Channel::Connect(*of_client.Listen("tcp://127.0.0.1:0"));
  ASSERT_THAT(board_->AddWatch(forgotten, "kv"), IsOk());
  EXPECT_EQ(old.asked.Take(), "kv");
  // The answer, after which it is forgotten, comes before that of a later call.
  EXPECT_THAT(SendAct(forgotten, 1).Wait(), Not(IsOk()));
  board_->SetHealth("kv", false);
  EXPECT_THAT(SendAct(forgotten, 2).Wait(), Not(IsOk()));  // After what SetHealth() sent, if anything.
  EXPECT_EQ(old.asked.size(), 0u);
}

// A poller has turns for other calls between 64 of them and the next.
TEST_F(HealthBoardTest, OfManyWhoseCallsFailAFewAtATimeAreNotifiedAgain) {
  constexpr size_t kWatches = 3 * HealthBoard::kAgainAtOnce + 8;
  FailingWatcher failing;
  Server of_clients;
  ASSERT_THAT(of_clients.AddService(&failing), IsOk());
  const auto connected = *Channel::Connect(*of_clients.Listen("tcp://127.0.0.1:0"));
  SteppedEnvironment environment;
  const auto board = std::make_shared<HealthBoard>(environment);
  const absl::Cleanup close = [&] { board->Close(environment.Now()); };
  board->Open({});
  // What was asked for before is answered before, since all share this connection.
  const auto until_answered = [&] { EXPECT_THAT(SendAct(connected, 1).Wait(), Not(IsOk())); };
  std::vector<std::shared_ptr<Channel>> clients;
  std::map<std::string, int> asked;
  for (size_t i = 0; i < kWatches; ++i) {
    clients.push_back(std::make_shared<Channel>(connected->core()));
    ASSERT_THAT(board->AddWatch(clients.back(), absl::StrCat("shard ", i)), IsOk());
    asked[failing.asked.Take()] = 0;
  }
  const auto asked_least = [&] {
    return std::min_element(asked.begin(), asked.end(),
                            [](const auto& one, const auto& other) { return one.second < other.second; })
        ->second;
  };
  while (asked_least() < 3) {
    environment.UntilItWaits();
    environment.Pass();
    environment.UntilItWaits();
    until_answered();
    const size_t at_once = failing.asked.size();
    ASSERT_LE(at_once, HealthBoard::kAgainAtOnce);
    for (size_t i = 0; i < at_once; ++i) ++asked[failing.asked.Take()];
  }
  for (const auto& [name, times] : asked) EXPECT_LE(times, 4) << name << " is asked more often than others";
  EXPECT_LE(environment.Now() - absl::UnixEpoch(), absl::Seconds(4)) << "each is asked after a second";
}

TEST_F(HealthBoardTest, AClientAtTheAddressOfOneThatIsGoneHasNoneOfItsWatches) {
  alignas(Channel) std::byte place[sizeof(Channel)];
  const auto connect_there = [&] {
    auto connected = Connect();
    auto* const there = new (place) Channel(connected->core());
    return std::shared_ptr<Channel>(there, [connected](Channel* channel) { channel->~Channel(); });
  };
  // More than the board keeps, if each of them left its own behind.
  for (int i = 0; i < 65; ++i) {
    const auto client = connect_there();
    ASSERT_THAT(Watch(client, 64, absl::StrCat("old ", i, " ")), IsOk()) << i;
  }
  const auto client = connect_there();
  ASSERT_THAT(board_->AddWatch(client, "kv"), IsOk());
  EXPECT_EQ(watcher_.told.Take(), "kv");
  EXPECT_THAT(Watch(Connect(2), 64), IsOk()) << "nor do they count";
  ASSERT_THAT(SendAct(client, 1).Wait(), IsOk());
  for (int i = 0; i < 64; ++i) board_->SetHealth(absl::StrCat("old 64 ", i), true);
  board_->SetHealth("kv", false);
  EXPECT_EQ(watcher_.told.Take(), "kv") << "and nothing of the others before";
}

}  // namespace
}  // namespace hawser::internal
