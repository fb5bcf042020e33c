// How long a poller that others keep busy prolongs what a peer may do with this side's memory.
#include "hawser/transport/sharing/watch_interval.h"

#include <arpa/inet.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/base/peer_table.h"
#include "hawser/base/socket_address.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/sharing/read_admission.h"
#include "hawser/transport/sharing/read_ledger.h"
#include "hawser/transport/sharing/response_watch.h"
#include "hawser/transport/wire/message.h"

namespace hawser::transport {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr absl::Duration kTime = ReadAdmission::kWatchInterval;
const absl::Duration kPart = kTime / 2;
// The longest that an interval lasts while the poller has turns, and is behind in each.
const absl::Duration kLongest = kTime + WatchInterval::kNotCountedMax * kPart;

PeerHost Host(const char* address) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  inet_pton(AF_INET, address, &v4.sin_addr);
  return PeerHost(SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4)));
}

// A poller of which the test says what time it is, and whether completions wait.
class TestPoller final : public PollerServices {
 public:
  explicit TestPoller(std::shared_ptr<fabric::Fabric> fabric = nullptr,
                      std::shared_ptr<MessagePool> messages = nullptr)
      : PollerServices(std::move(fabric), std::move(messages), /*now_ns=*/0) {
    if (fabric_ != nullptr) completion_queue_ = *fabric_->CreateCompletionQueue(16);
  }

  // A turn, so much later.
  void Pass(absl::Duration time, bool behind = false) {
    now_ns_ += absl::ToInt64Nanoseconds(time);
    more_waiting_ = behind;
    timers_.RunDue(now_ns_);
  }
};

class WatchIntervalTest : public ::testing::Test {
 protected:
  // Turns every `step`. The time until the interval is over, or nullopt: it is not within a minute.
  std::optional<absl::Duration> TimeUntilOver(absl::Duration step, bool behind = false) {
    for (absl::Duration time; time < absl::Minutes(1);) {
      time += step;
      poller_.Pass(step, behind);
      if (over_) return time;
    }
    return std::nullopt;
  }

  TestPoller poller_;
  bool over_ = false;
  Timer timer_{[this] { over_ = interval_.IsOver(); }};
  WatchInterval interval_{poller_, timer_, kTime};
};

TEST_F(WatchIntervalTest, IsOverAfterItsTime) {
  interval_.Begin();
  EXPECT_EQ(TimeUntilOver(absl::Milliseconds(100)), kTime);
}

TEST_F(WatchIntervalTest, GoesOnWhileThePollerIsBehindAtItsEnd) {
  interval_.Begin();
  for (int part = 0; part < 6; ++part) poller_.Pass(kPart, /*behind=*/true);
  ASSERT_FALSE(over_);
  poller_.Pass(kPart);
  EXPECT_TRUE(over_);
}

TEST_F(WatchIntervalTest, IsOverInTheEndThoughThePollerIsAlwaysBehind) {
  interval_.Begin();
  EXPECT_EQ(TimeUntilOver(absl::Milliseconds(100), /*behind=*/true), kLongest);
}

TEST_F(WatchIntervalTest, IsOverInTheEndThoughThePollerIsHeldAgainAndAgain) {
  interval_.Begin();
  const absl::Duration held = kPart + kPart / 2;  // So that each part ends late.
  EXPECT_EQ(TimeUntilOver(held), held * (WatchInterval::kNotCountedMax + 2));
}

TEST_F(WatchIntervalTest, AProcessThatWasStoppedForAnHourHasTheWholeTimeAfterThat) {
  interval_.Begin();
  poller_.Pass(absl::Hours(1), /*behind=*/true);
  ASSERT_FALSE(over_);
  EXPECT_EQ(TimeUntilOver(absl::Milliseconds(100)), kTime);
}

TEST_F(WatchIntervalTest, TheNextOneHasAsMuchTimeAgain) {
  interval_.Begin();
  ASSERT_EQ(TimeUntilOver(absl::Milliseconds(100), /*behind=*/true), kLongest);
  over_ = false;
  interval_.Begin();
  EXPECT_EQ(TimeUntilOver(absl::Milliseconds(100), /*behind=*/true), kLongest);
}

// ---- What uses it. A peer that never stops sending keeps the poller behind.

class BusyPollerTest : public ::testing::Test {
 protected:
  // Turns, in each of which the poller is behind, until `condition` holds; the time.
  template <typename Condition>
  absl::Duration TimeUntil(const Condition& condition) {
    constexpr absl::Duration kStep = absl::Milliseconds(100);
    absl::Duration time;
    for (; !condition() && time < absl::Minutes(1); time += kStep) {
      // Memory is short for responses, too.
      EXPECT_FALSE(pool_->Acquire(24 * kMiB).ok());
      poller_.Pass(kStep, /*behind=*/true);
    }
    EXPECT_TRUE(condition());
    return time;
  }

  std::shared_ptr<fabric::Fabric> fabric_ = NewTestFabric();
  std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>(
      fabric_, BufferPoolOptions{.limit_bytes = 32 * kMiB}, BufferPool::Threads::kNone);
  TestPoller poller_{fabric_, MessagePool::Create(pool_)};
  ReadLedger ledger_{*pool_};
  ReadAdmission admission_{poller_, ledger_, /*host_share=*/0.75};
};

class Sender final : public ReadAccount::Owner {
 public:
  explicit Sender(const char* address) : host_(Host(address)) {}
  int ends = 0;

 private:
  PeerHost peer_host() const override { return host_; }
  bool waits_for_peer() const override { return true; }
  void EndForMemory() override { ++ends; }
  const PeerHost host_;
};

class Announced final : public AnnouncedMessage {
 public:
  Lease sink;

 private:
  void OnAdmitted(Lease lease) override { sink = std::move(lease); }
  void OnNoMemory() override {}
};

TEST_F(BusyPollerTest, APeerWhoseReadsStandStillLosesItsMemory) {
  Sender stalled("10.0.0.1"), waits("10.0.0.2");
  ReadAccount stalled_account(admission_, stalled), waits_account(admission_, waits);
  Announced held, waiting;
  admission_.Announce(held, 20 * kMiB, 0, stalled_account);
  ASSERT_TRUE(held.sink);
  admission_.OnReadQueued(held, 20 * kMiB);
  admission_.Announce(waiting, 20 * kMiB, 0, waits_account);
  ASSERT_FALSE(waiting.sink);
  const absl::Duration time = TimeUntil([&] { return stalled.ends > 0; });
  EXPECT_GE(time, kTime);
  EXPECT_LE(time, kLongest);
  EXPECT_EQ(waits.ends, 0);
  admission_.OnReadsEnded(held);
  admission_.Release(held);
  admission_.Withdraw(waiting);
}

class Holder final : public ResponseAccount::Owner {
 public:
  int ends = 0;

 private:
  PeerHost peer_host() const override { return Host("10.0.0.1"); }
  std::optional<uint64_t> answered_read_bytes() const override { return 0; }
  uint64_t CountHeld() override { return 20 * kMiB; }
  void EndForMemory() override { ++ends; }
};

TEST_F(BusyPollerTest, APeerThatNeitherReadsNorReleasesLosesItsMemory) {
  ResponseWatch watch(poller_, ledger_, admission_, /*host_share=*/0.75);
  Holder holder;
  ResponseAccount account(watch, holder);
  const absl::StatusOr<Lease> held = pool_->Acquire(20 * kMiB);
  ASSERT_TRUE(held.ok() && account.MayGrant({20 * kMiB, 20 * kMiB}).ok());
  account.OnGranted({20 * kMiB, 20 * kMiB});
  const absl::Duration time = TimeUntil([&] { return holder.ends > 0; });
  EXPECT_GE(time, kTime);
  EXPECT_LE(time, kLongest);
}

}  // namespace
}  // namespace hawser::transport
