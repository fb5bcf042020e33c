#include "examples/kv/watch_hub.h"

#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace kv {
namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A client of the hub: keeps what is pushed to it, and answers when it is told to.
class FakePeer {
 public:
  WatchHub::Push Push() {
    return [this](const ChangeLog::Batch& batch, WatchHub::PushDone done) {
      pushes_.push_back({batch, std::move(done)});
    };
  }
  const std::shared_ptr<int>& name() const { return name_; }
  size_t unanswered() const { return pushes_.size(); }

  // The revisions of the oldest push that is not answered; then answers it.
  std::vector<uint64_t> Answer(const absl::Status& status = absl::OkStatus()) {
    auto [batch, done] = std::move(pushes_.front());
    pushes_.pop_front();
    std::vector<uint64_t> revisions;
    for (const Change& change : batch.changes) revisions.push_back(change.revision);
    last_ = std::move(batch);
    done(status);
    return revisions;
  }
  const ChangeLog::Batch& last() const { return last_; }  // What Answer() was about.

 private:
  std::shared_ptr<int> name_ = std::make_shared<int>();
  std::deque<std::pair<ChangeLog::Batch, WatchHub::PushDone>> pushes_;
  ChangeLog::Batch last_;
};

class WatchHubTest : public testing::Test {
 protected:
  void Put(absl::string_view key) {
    log_.Append(Change::Kind::kPut, key, 1);
    hub_.Notify();
  }
  WatchHub::Started Watch(FakePeer& peer, absl::string_view prefix,
                          std::optional<uint64_t> after = std::nullopt) {
    hub_.AddPeer(peer.name());
    return *hub_.Watch(peer.name().get(), 1, prefix, after, peer.Push());
  }

  ChangeLog log_{10000};
  WatchHub hub_{&log_};
};

TEST_F(WatchHubTest, AWatcherIsToldOfWhatChangesFromNowOn) {
  Put("a");
  FakePeer peer;
  EXPECT_EQ(Watch(peer, "").revision, 1u);
  EXPECT_EQ(peer.unanswered(), 0u);
  Put("b");
  EXPECT_THAT(peer.Answer(), ElementsAre(2));
}

TEST_F(WatchHubTest, OfItsPrefixOnly) {
  FakePeer peer;
  Watch(peer, "x/");
  Put("y/1");
  EXPECT_EQ(peer.unanswered(), 0u);
  Put("x/1");
  EXPECT_THAT(peer.Answer(), ElementsAre(2));
}

TEST_F(WatchHubTest, OnePushIsInFlightAndTheNextHasAllThatHappenedMeanwhile) {
  FakePeer peer;
  Watch(peer, "");
  for (int i = 0; i < 5; ++i) Put("a");
  EXPECT_EQ(peer.unanswered(), 1u);
  EXPECT_THAT(peer.Answer(), ElementsAre(1));
  EXPECT_EQ(peer.unanswered(), 1u);
  EXPECT_THAT(peer.Answer(), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(peer.unanswered(), 0u);
}

TEST_F(WatchHubTest, AWatcherThatFellBehindIsToldAndGoesOnFromThePresent) {
  FakePeer peer;
  Watch(peer, "");
  for (int i = 0; i < 1000; ++i) Put("a");  // More than the log holds.
  EXPECT_THAT(peer.Answer(), ElementsAre(1));
  EXPECT_THAT(peer.Answer(), IsEmpty());
  EXPECT_TRUE(peer.last().lost);
  EXPECT_EQ(peer.last().through, 1000u);
  Put("a");
  EXPECT_THAT(peer.Answer(), ElementsAre(1001));
  EXPECT_FALSE(peer.last().lost);
}

TEST_F(WatchHubTest, OneThatStoppedLeavesTheOthersAlone) {
  FakePeer stopped, other;
  Watch(stopped, "");
  Watch(other, "");
  for (uint64_t revision = 1; revision <= 1000; ++revision) {
    Put("a");
    EXPECT_THAT(other.Answer(), ElementsAre(revision));
  }
  EXPECT_EQ(stopped.unanswered(), 1u);
}

TEST_F(WatchHubTest, APushThatTimedOutIsSentAgain) {
  FakePeer peer;
  Watch(peer, "");
  Put("a");
  EXPECT_THAT(peer.Answer(absl::DeadlineExceededError("")), ElementsAre(1));
  EXPECT_THAT(peer.Answer(), ElementsAre(1));
  EXPECT_EQ(peer.unanswered(), 0u);
}

TEST_F(WatchHubTest, APushForWhichThereWasNoMemoryIsSentWithTheNextChange) {
  FakePeer peer;
  Watch(peer, "");
  Put("a");
  EXPECT_THAT(peer.Answer(absl::ResourceExhaustedError("")), ElementsAre(1));
  EXPECT_EQ(peer.unanswered(), 0u);
  Put("b");
  EXPECT_THAT(peer.Answer(), ElementsAre(1, 2));
}

TEST_F(WatchHubTest, AWatchResumesWhereItWas) {
  for (int i = 0; i < 5; ++i) Put("a");
  FakePeer peer;
  WatchHub::Started started = Watch(peer, "", 3);
  EXPECT_FALSE(started.lost);
  EXPECT_EQ(started.revision, 3u);
  EXPECT_THAT(peer.Answer(), ElementsAre(4, 5));
}

TEST_F(WatchHubTest, AWatchThatTheLogNoLongerReachesBackToIsToldSo) {
  for (int i = 0; i < 1000; ++i) Put("a");
  FakePeer peer;
  WatchHub::Started started = Watch(peer, "", 3);
  EXPECT_TRUE(started.lost);
  EXPECT_EQ(started.revision, 1000u);
  EXPECT_EQ(peer.unanswered(), 0u);
}

TEST_F(WatchHubTest, AWatchOfTheSameNumberIsReplaced) {
  FakePeer peer;
  Watch(peer, "x");
  Watch(peer, "y");
  EXPECT_EQ(hub_.watches(), 1u);
  Put("x");
  EXPECT_EQ(peer.unanswered(), 0u);
  Put("y");
  EXPECT_THAT(peer.Answer(), ElementsAre(2));
}

TEST_F(WatchHubTest, NothingMoreIsPushedAfterUnwatch) {
  FakePeer peer;
  Watch(peer, "");
  Put("a");
  Put("b");
  hub_.Unwatch(peer.name().get(), 1);
  EXPECT_EQ(hub_.watches(), 0u);
  peer.Answer();
  Put("c");
  EXPECT_EQ(peer.unanswered(), 0u);
}

TEST_F(WatchHubTest, APeerThatIsGoneIsForgotten) {
  FakePeer peer;
  Watch(peer, "");
  hub_.RemovePeer(peer.name().get());
  Put("a");
  EXPECT_EQ(peer.unanswered(), 0u);
  EXPECT_EQ(peer.name().use_count(), 1);
  EXPECT_THAT(hub_.Watch(peer.name().get(), 1, "", std::nullopt, peer.Push()).status(),
              HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(WatchHubTest, EachPrefixOfAKeyIsFoundAndNoOther) {
  FakePeer matching[4], others[6];
  const char* const kMatching[] = {"", "a", "ab/", "ab/c"};
  const char* const kOthers[] = {"aa", "ab/b", "ab/ca", "ab/c ", "b", "ab/\xff"};
  for (int i = 0; i < 4; ++i) Watch(matching[i], kMatching[i]);
  for (int i = 0; i < 6; ++i) Watch(others[i], kOthers[i]);
  Put("ab/c");
  for (FakePeer& peer : matching) EXPECT_EQ(peer.unanswered(), 1u);
  for (FakePeer& peer : others) EXPECT_EQ(peer.unanswered(), 0u);
  EXPECT_EQ(hub_.idle_watchers(), 6u);
}

TEST_F(WatchHubTest, ReplacedWatchesLeaveNothingBehind) {
  FakePeer peer;
  for (int i = 0; i < 1000; ++i) Watch(peer, absl::StrCat("prefix ", i));
  EXPECT_EQ(hub_.idle_watchers(), 1u);
  hub_.Unwatch(peer.name().get(), 1);
  EXPECT_EQ(hub_.idle_watchers(), 0u);
}

TEST_F(WatchHubTest, AClientThatReplacesItsWatchAndAnswersNothingIsRefused) {
  Put("a");
  FakePeer peer;
  hub_.AddPeer(peer.name());
  const auto watch = [&] { return hub_.Watch(peer.name().get(), 1, "", 0, peer.Push()).status(); };
  while (peer.unanswered() < 10 * WatchHub::kWatchesMax && watch().ok()) {
  }
  EXPECT_EQ(peer.unanswered(), WatchHub::kWatchesMax);
  EXPECT_THAT(watch(), HasCode(absl::StatusCode::kResourceExhausted));
  peer.Answer();
  EXPECT_THAT(watch(), IsOk());
}

TEST_F(WatchHubTest, WatchesOfAPeerThatIsGoneLeaveNothingBehind) {
  for (int i = 0; i < 100; ++i) {
    FakePeer peer;
    Watch(peer, "");
    hub_.RemovePeer(peer.name().get());
  }
  EXPECT_EQ(hub_.idle_watchers(), 0u);
}

TEST_F(WatchHubTest, AnIdleWatcherLosesNothingHoweverMuchOfOtherKeysChanges) {
  FakePeer peer;
  Watch(peer, "x");
  for (int i = 0; i < 1000; ++i) Put("a");  // More than the log holds.
  EXPECT_EQ(peer.unanswered(), 0u);
  Put("x");
  EXPECT_THAT(peer.Answer(), ElementsAre(1001));
  EXPECT_FALSE(peer.last().lost);
}

// A rare prefix, and a log that is long: no step looks at all of it.
TEST(WatchHubResumeTest, AWatchFarBackReadsTheLogInBoundedSteps) {
  constexpr uint64_t kChanges = 10 * ChangeLog::kLookedAtMax;
  ChangeLog log(100 << 20);
  for (uint64_t i = 1; i < kChanges; ++i) log.Append(Change::Kind::kPut, "a", 1);
  log.Append(Change::Kind::kPut, "rare", 1);
  WatchHub hub(&log);
  FakePeer peer;
  hub.AddPeer(peer.name());
  ASSERT_THAT(hub.Watch(peer.name().get(), 1, "rare", 0, peer.Push()), IsOk());
  uint64_t through = 0;
  std::vector<uint64_t> revisions;
  while (peer.unanswered() > 0) {
    revisions = peer.Answer();
    EXPECT_LE(peer.last().through - through, ChangeLog::kLookedAtMax);
    through = peer.last().through;
  }
  EXPECT_THAT(revisions, ElementsAre(kChanges));
  EXPECT_EQ(hub.idle_watchers(), 1u);
}

TEST_F(WatchHubTest, AWatchThatItsClientDoesNotKnowIsEnded) {
  FakePeer peer;
  Watch(peer, "");
  Put("a");
  peer.Answer(absl::NotFoundError(""));
  EXPECT_EQ(hub_.watches(), 0u);
}

TEST_F(WatchHubTest, TheAnswerOfAReplacedWatchDoesNotEndItsSuccessor) {
  FakePeer peer;
  Watch(peer, "");
  Put("a");
  Watch(peer, "");
  peer.Answer(absl::NotFoundError(""));
  EXPECT_EQ(hub_.watches(), 1u);
}

TEST_F(WatchHubTest, AClientCannotHaveAnyNumberOfWatches) {
  FakePeer peer;
  hub_.AddPeer(peer.name());
  for (uint64_t number = 0; number < WatchHub::kWatchesMax; ++number) {
    ASSERT_THAT(hub_.Watch(peer.name().get(), number, "", std::nullopt, peer.Push()), IsOk());
  }
  EXPECT_THAT(hub_.Watch(peer.name().get(), WatchHub::kWatchesMax, "", std::nullopt, peer.Push()).status(),
              HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(hub_.Watch(peer.name().get(), 0, "", std::nullopt, peer.Push()), IsOk());  // Replaces one.
}

// Writers on several threads; the watcher answers on yet another.
TEST(WatchHubThreadsTest, EveryChangeComesOnceAndInOrder) {
  constexpr int kWriters = 4, kChanges = 5000;
  ChangeLog log(100 << 20);
  WatchHub hub(&log);
  absl::Mutex mutex;
  std::deque<std::pair<ChangeLog::Batch, WatchHub::PushDone>> pushes;
  auto peer = std::make_shared<int>();
  hub.AddPeer(peer);
  ASSERT_THAT(hub.Watch(peer.get(), 1, "", std::nullopt,
                        [&](const ChangeLog::Batch& batch, WatchHub::PushDone done) {
                          absl::MutexLock lock(&mutex);
                          pushes.push_back({batch, std::move(done)});
                        }),
              IsOk());
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&] {
      for (int i = 0; i < kChanges; ++i) {
        log.Append(Change::Kind::kPut, "key", 1);
        hub.Notify();
      }
    });
  }
  for (uint64_t seen = 0; seen < kWriters * kChanges;) {
    const auto pushed = [&] { return !pushes.empty(); };
    absl::ReleasableMutexLock lock(&mutex, absl::Condition(&pushed));
    ASSERT_EQ(pushes.size(), 1u);
    auto [batch, done] = std::move(pushes.front());
    pushes.pop_front();
    lock.Release();
    for (const Change& change : batch.changes) ASSERT_EQ(change.revision, ++seen);
    done(absl::OkStatus());
  }
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace kv
