#include "examples/kv/watch_hub.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
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
using End = WatchHub::PushEnd;

// A client of the hub: keeps what is pushed to it, and answers when it is told to.
class FakePeer {
 public:
  WatchHub::Push Push() {
    return [this](const ChangeLog::Batch& batch, WatchHub::PushDone done, WatchHub::Soon soon) {
      pushes_.push_back({batch, std::move(done)});
      if (soon) soon_ = std::move(soon);
    };
  }
  // What the hub wants to do in another turn; empty: nothing.
  WatchHub::Soon TakeSoon() { return std::exchange(soon_, nullptr); }
  const std::shared_ptr<int>& name() const { return name_; }
  size_t unanswered() const { return pushes_.size(); }

  // The revisions of the oldest push that is not answered; then answers it.
  std::vector<uint64_t> Answer(End end = End::kReceived) {
    auto [batch, done] = std::move(pushes_.front());
    pushes_.pop_front();
    std::vector<uint64_t> revisions;
    for (const Change& change : batch.changes) revisions.push_back(change.revision);
    last_ = std::move(batch);
    done(end);
    return revisions;
  }
  const ChangeLog::Batch& last() const { return last_; }  // What Answer() was about.

 private:
  std::shared_ptr<int> name_ = std::make_shared<int>();
  std::deque<std::pair<ChangeLog::Batch, WatchHub::PushDone>> pushes_;
  ChangeLog::Batch last_;
  WatchHub::Soon soon_;
};

using Peers = std::deque<FakePeer>;

size_t Unanswered(const Peers& peers) {
  size_t count = 0;
  for (const FakePeer& peer : peers) count += peer.unanswered();
  return count;
}

// What the hub has asked one of them for.
WatchHub::Soon TakeSoon(Peers& peers) {
  WatchHub::Soon taken;
  for (FakePeer& peer : peers) {
    WatchHub::Soon soon = peer.TakeSoon();
    if (!soon) continue;
    EXPECT_FALSE(taken) << "two at once";
    taken = std::move(soon);
  }
  return taken;
}

class WatchHubTest : public testing::Test {
 protected:
  void Put(absl::string_view key) {
    log_.Append(Change::Kind::kPut, key, 1);
    hub_.Notify();
  }
  WatchHub::Started Watch(FakePeer& peer, absl::string_view prefix,
                          std::optional<uint64_t> after = std::nullopt) {
    hub_.AddPeer(peer.name(), "tcp://10.0.0.1:1");
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
  EXPECT_THAT(peer.Answer(End::kTimedOut), ElementsAre(1));
  EXPECT_THAT(peer.Answer(), ElementsAre(1));
  EXPECT_EQ(peer.unanswered(), 0u);
}

TEST_F(WatchHubTest, APushForWhichThereWasNoMemoryIsSentWithTheNextChange) {
  FakePeer peer;
  Watch(peer, "");
  Put("a");
  EXPECT_THAT(peer.Answer(End::kNoMemory), ElementsAre(1));
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
  hub_.AddPeer(peer.name(), "tcp://10.0.0.1:1");
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
  hub.AddPeer(peer.name(), "tcp://10.0.0.1:1");
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
  peer.Answer(End::kFailed);
  EXPECT_EQ(hub_.watches(), 0u);
}

TEST_F(WatchHubTest, TheAnswerOfAReplacedWatchDoesNotEndItsSuccessor) {
  FakePeer peer;
  Watch(peer, "");
  Put("a");
  Watch(peer, "");
  peer.Answer(End::kFailed);
  EXPECT_EQ(hub_.watches(), 1u);
}

TEST_F(WatchHubTest, AClientCannotHaveAnyNumberOfWatches) {
  FakePeer peer;
  hub_.AddPeer(peer.name(), "tcp://10.0.0.1:1");
  for (uint64_t number = 0; number < WatchHub::kWatchesMax; ++number) {
    ASSERT_THAT(hub_.Watch(peer.name().get(), number, "", std::nullopt, peer.Push()), IsOk());
  }
  EXPECT_THAT(hub_.Watch(peer.name().get(), WatchHub::kWatchesMax, "", std::nullopt, peer.Push()).status(),
              HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(hub_.Watch(peer.name().get(), 0, "", std::nullopt, peer.Push()), IsOk());  // Replaces one.
}

TEST_F(WatchHubTest, OneHostLeavesWatchesForOthers) {
  Peers peers(WatchHub::kHostWatchesMax / WatchHub::kWatchesMax + 1);
  const auto watch = [&](FakePeer& peer, uint64_t number, absl::string_view address) {
    hub_.AddPeer(peer.name(), address);
    return hub_.Watch(peer.name().get(), number, "", std::nullopt, peer.Push()).status();
  };
  for (size_t i = 0; i + 1 < peers.size(); ++i) {
    for (uint64_t number = 0; number < WatchHub::kWatchesMax; ++number) {
      ASSERT_THAT(watch(peers[i], number, absl::StrCat("tcp://10.0.0.1:", i)), IsOk());
    }
  }
  EXPECT_THAT(watch(peers.back(), 1, "tcp://10.0.0.1:7"), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(watch(peers[0], 1, "tcp://10.0.0.1:0"), IsOk());  // Replaces one.
  FakePeer other;
  EXPECT_THAT(watch(other, 1, "tcp://10.0.0.11:7"), IsOk());
  hub_.Unwatch(peers[0].name().get(), 1);
  EXPECT_THAT(watch(peers.back(), 1, "tcp://10.0.0.1:7"), IsOk());
  EXPECT_THAT(watch(peers.back(), 2, "tcp://10.0.0.1:7"), HasCode(absl::StatusCode::kResourceExhausted));
  hub_.RemovePeer(peers[0].name().get());
  EXPECT_THAT(watch(peers.back(), 2, "tcp://10.0.0.1:7"), IsOk());
}

TEST_F(WatchHubTest, AnIpv6HostIsItsNetworkOf64Bits) {
  Peers peers(WatchHub::kHostWatchesMax / WatchHub::kWatchesMax);
  for (size_t i = 0; i < peers.size(); ++i) {
    hub_.AddPeer(peers[i].name(), absl::StrCat("tcp://[2001:db8::", i, "]:7"));
    for (uint64_t number = 0; number < WatchHub::kWatchesMax; ++number) {
      ASSERT_THAT(hub_.Watch(peers[i].name().get(), number, "", std::nullopt, peers[i].Push()), IsOk());
    }
  }
  const auto watch = [&](absl::string_view address) {
    FakePeer peer;
    hub_.AddPeer(peer.name(), address);
    const absl::Status status = hub_.Watch(peer.name().get(), 1, "", std::nullopt, peer.Push()).status();
    hub_.RemovePeer(peer.name().get());
    return status;
  };
  EXPECT_THAT(watch("tcp://[2001:db8:0:0:1:2:3:4]:7"), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(watch("tcp://[2001:db8:0:1:1:2:3:4]:7"), IsOk());
  EXPECT_THAT(watch("tcp://[fe80::1%eth0]:7"), IsOk());
  EXPECT_THAT(watch("tcp://127.0.0.1:7"), IsOk());
}

TEST_F(WatchHubTest, AChangeStartsAFewPushesInEachTurn) {
  Peers peers(300);
  for (FakePeer& peer : peers) Watch(peer, "");
  Put("a");
  size_t started = Unanswered(peers);
  EXPECT_EQ(started, WatchHub::kStartedMax);
  while (const WatchHub::Soon soon = TakeSoon(peers)) {
    soon();
    EXPECT_LE(Unanswered(peers), started + WatchHub::kStartedMax);
    EXPECT_GT(Unanswered(peers), started);
    started = Unanswered(peers);
  }
  EXPECT_EQ(started, peers.size());
  for (FakePeer& peer : peers) EXPECT_THAT(peer.Answer(), ElementsAre(1));
  EXPECT_EQ(hub_.idle_watchers(), peers.size());
}

TEST_F(WatchHubTest, ManyWatchersOfOnePrefixDoNotKeepThoseOfAnotherWaiting) {
  Peers peers(300);
  for (FakePeer& peer : peers) Watch(peer, "");
  FakePeer other;
  Watch(other, "x");
  Put("a");
  Put("x");
  EXPECT_EQ(Unanswered(peers), WatchHub::kStartedMax);  // The second one starts no more of them in this turn.
  EXPECT_EQ(other.unanswered(), 0u);
  TakeSoon(peers)();
  EXPECT_THAT(other.Answer(), ElementsAre(2));
  while (const WatchHub::Soon soon = TakeSoon(peers)) soon();
  for (size_t i = 0; i < WatchHub::kStartedMax; ++i) {
    EXPECT_THAT(peers[i].Answer(), ElementsAre(1));
    EXPECT_THAT(peers[i].Answer(), ElementsAre(2));
  }
  for (size_t i = WatchHub::kStartedMax; i < peers.size(); ++i) {
    EXPECT_THAT(peers[i].Answer(), ElementsAre(1, 2));
  }
}

TEST_F(WatchHubTest, AWatchThatEndsBeforeItsTurnIsNotPushed) {
  Peers peers(300);
  for (FakePeer& peer : peers) Watch(peer, "");
  Put("a");
  for (size_t i = WatchHub::kStartedMax; i < peers.size(); ++i) {
    if (i % 2 == 0) {
      hub_.Unwatch(peers[i].name().get(), 1);
    } else {
      hub_.RemovePeer(peers[i].name().get());
    }
  }
  EXPECT_EQ(hub_.idle_watchers(), 0u);
  TakeSoon(peers)();
  EXPECT_FALSE(TakeSoon(peers));
  EXPECT_EQ(Unanswered(peers), WatchHub::kStartedMax);
  FakePeer later;
  Watch(later, "");
  Put("a");
  EXPECT_THAT(later.Answer(), ElementsAre(2));
}

TEST_F(WatchHubTest, APushThatFindsNoMemoryWaitsForAChangeAndNotForATurn) {
  Peers peers(300);
  for (FakePeer& peer : peers) Watch(peer, "");
  Put("a");
  FakePeer& starved = peers.front();
  EXPECT_THAT(starved.Answer(End::kNoMemory), ElementsAre(1));
  while (const WatchHub::Soon soon = TakeSoon(peers)) soon();
  EXPECT_EQ(starved.unanswered(), 0u);
  Put("b");
  EXPECT_THAT(starved.Answer(), ElementsAre(1, 2));
}

// Any order of changes, turns, answers and ends of watches. What a watcher has received at the end is each
// change of its prefix since it began, once and in order.
TEST(WatchHubRandomTest, EveryChangeComesOnceAndInOrderWhateverTheOrderOfEvents) {
  constexpr int kPeers = 100, kSteps = 3000;
  const char* const kKeys[] = {"", "a", "ab", "abc", "b", "c"};
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 dice(seed);
    const auto roll = [&](size_t sides) { return dice() % sides; };
    ChangeLog log(100 << 20);
    WatchHub hub(&log);
    std::vector<std::string> changes = {""};  // The key of each revision.
    std::vector<std::shared_ptr<int>> peers;
    struct Seen {
      std::string prefix;
      uint64_t after;
      std::vector<uint64_t> revisions;
    };
    std::map<size_t, std::shared_ptr<Seen>> watching;  // By peer.
    WatchHub::Soon next_turn;
    struct Flight {
      std::shared_ptr<Seen> seen;
      ChangeLog::Batch batch;
      WatchHub::PushDone done;
    };
    std::deque<Flight> flights;
    for (int i = 0; i < kPeers; ++i) {
      peers.push_back(std::make_shared<int>(i));
      hub.AddPeer(peers.back(), "tcp://10.0.0.1:1");
    }
    const auto watch = [&](size_t peer) {
      auto seen = std::make_shared<Seen>(Seen{kKeys[roll(6)], 0, {}});
      const auto started =
          hub.Watch(peers[peer].get(), 1, seen->prefix, std::nullopt,
                    [&, seen](const ChangeLog::Batch& batch, WatchHub::PushDone done, WatchHub::Soon soon) {
                      flights.push_back({seen, batch, std::move(done)});
                      if (!soon) return;
                      EXPECT_FALSE(next_turn);
                      next_turn = std::move(soon);
                    });
      ASSERT_THAT(started, IsOk());
      seen->after = started->revision;
      watching[peer] = seen;
    };
    const auto answer = [&](size_t which, bool well) {
      Flight flight = std::move(flights[which]);
      flights.erase(flights.begin() + static_cast<ptrdiff_t>(which));
      const size_t how = well ? 0 : roll(6);
      if (how > 1) return flight.done(how % 2 == 0 ? End::kTimedOut : End::kNoMemory);
      for (const Change& change : flight.batch.changes) flight.seen->revisions.push_back(change.revision);
      flight.done(End::kReceived);
    };
    const auto put = [&](const char* key) {
      changes.emplace_back(key);
      log.Append(Change::Kind::kPut, key, 1);
      hub.Notify();
    };
    for (size_t i = 0; i < peers.size(); ++i) watch(i);
    for (int step = 0; step < kSteps; ++step) {
      const size_t what = roll(20), peer = roll(kPeers);
      if (what == 0) {
        put(kKeys[1 + roll(5)]);
      } else if (what < 3) {
        if (next_turn) std::exchange(next_turn, nullptr)();
      } else if (what == 3) {
        watch(peer);  // Replaces one that is in any state.
      } else if (what == 4) {
        hub.Unwatch(peers[peer].get(), 1);
        watching.erase(peer);
      } else if (!flights.empty()) {
        answer(roll(flights.size()), false);
      }
    }
    put("zz");  // For those that found no memory.
    while (next_turn || !flights.empty()) {
      if (next_turn) std::exchange(next_turn, nullptr)();
      if (!flights.empty()) answer(0, true);
    }
    EXPECT_EQ(hub.idle_watchers(), watching.size());
    for (const auto& [peer, seen] : watching) {
      std::vector<uint64_t> expected;
      for (uint64_t revision = seen->after + 1; revision < changes.size(); ++revision) {
        if (changes[revision].starts_with(seen->prefix)) expected.push_back(revision);
      }
      ASSERT_EQ(seen->revisions, expected) << "of \"" << seen->prefix << "\" after " << seen->after;
    }
  }
}

// Writers on several threads; the watcher answers on yet another.
TEST(WatchHubThreadsTest, EveryChangeComesOnceAndInOrder) {
  constexpr int kWriters = 4, kChanges = 5000;
  ChangeLog log(100 << 20);
  WatchHub hub(&log);
  absl::Mutex mutex;
  std::deque<std::pair<ChangeLog::Batch, WatchHub::PushDone>> pushes;
  auto peer = std::make_shared<int>();
  hub.AddPeer(peer, "tcp://10.0.0.1:1");
  ASSERT_THAT(hub.Watch(peer.get(), 1, "", std::nullopt,
                        [&](const ChangeLog::Batch& batch, WatchHub::PushDone done, WatchHub::Soon) {
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
    done(End::kReceived);
  }
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace kv
