#include "hawser/rpc/client/call_state.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hawser::internal {
namespace {

// ---- Handover: the caller's events in their order, with the result at any point between them.

// Runs the events in every possible order, and counts how often the result is handed over in each order.
class Handovers {
 public:
  using State = Handover::State;
  using Event = Handover::Event;

  explicit Handovers(std::vector<Event> caller) : caller_(std::move(caller)) {
    Go(State::kNeither, 0, false, 0, 0, "");
  }

  // The count of each order.
  std::vector<int> counts;

 private:
  // `late`: callbacks that wait for the next turn.
  void Go(State state, size_t next, bool result, int late, int handed_over, const std::string& so_far) {
    if (next == caller_.size() && result && late == 0) counts.push_back(handed_over);
    if (next < caller_.size()) {
      const Event event = caller_[next];
      const bool has_it = state == State::kResult;
      Go(Step(state, event, so_far), next + 1, result, late + (has_it && event == Event::kHook),
         handed_over + (has_it && event == Event::kWait), so_far + "caller ");
    }
    if (!result) {
      const bool asked = state == State::kWaiter || state == State::kCallback;
      Go(Step(state, Event::kResult, so_far), next, true, late, handed_over + asked, so_far + "result ");
    }
    if (late > 0) {
      Go(Step(state, Event::kCallBack, so_far), next, result, late - 1,
         handed_over + (state == State::kResultCallback), so_far + "callback ");
    }
  }
  static State Step(State state, Event event, const std::string& so_far) {
    const State next = Handover::Next(state, event);
    EXPECT_NE(next, State::kImpossible) << so_far << static_cast<int>(event);
    return next;
  }

  const std::vector<Event> caller_;
};

TEST(HandoverTest, ACallerThatWaitsGetsTheResultOnce) {
  const Handovers all({Handover::Event::kWait});
  EXPECT_EQ(all.counts, std::vector<int>({1, 1}));
}

TEST(HandoverTest, ACallbackGetsTheResultOnce) {
  const Handovers all({Handover::Event::kHook});
  EXPECT_EQ(all.counts, std::vector<int>({1, 1}));
}

TEST(HandoverTest, AnUnhookedCallbackDoesNotRunAfterwards) {
  const Handovers all({Handover::Event::kHook, Handover::Event::kUnhook});
  // Unhook before the result, after the result, before a late callback, and after a late callback.
  EXPECT_EQ(all.counts, std::vector<int>({0, 1, 0, 1}));
}

TEST(HandoverTest, AResultThatComesAfterTheCallerGaveUpIsDropped) {
  const Handovers all({Handover::Event::kWait, Handover::Event::kGiveUp});
  EXPECT_EQ(all.counts, std::vector<int>({0, 1, 1}));
}

// ---- Stages

using State = CallStage::State;
using Event = CallStage::Event;

// The states in which `event` is possible, and the state to which each leads.
std::vector<std::pair<State, State>> Of(Event event) {
  std::vector<std::pair<State, State>> cells;
  for (int state = 0; state < static_cast<int>(State::kImpossible); ++state) {
    const State next = CallStage::Next(static_cast<State>(state), event);
    if (next != State::kImpossible) cells.push_back({static_cast<State>(state), next});
  }
  return cells;
}

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(CallStageTest, ACallIsSentOnceUnlessItComesBack) {
  EXPECT_THAT(Of(Event::kQueue),
              ElementsAre(Pair(State::kNew, State::kQueued), Pair(State::kQueued, State::kQueued),
                          Pair(State::kReturning, State::kQueued), Pair(State::kCarried, State::kQueued)));
  EXPECT_THAT(Of(Event::kSend),
              ElementsAre(Pair(State::kNew, State::kSent), Pair(State::kQueued, State::kSent),
                          Pair(State::kReturning, State::kSent), Pair(State::kCarried, State::kSent)));
  EXPECT_THAT(Of(Event::kCarry),
              ElementsAre(Pair(State::kNew, State::kCarried), Pair(State::kQueued, State::kCarried),
                          Pair(State::kReturning, State::kCarried), Pair(State::kCarried, State::kCarried)));
  EXPECT_THAT(Of(Event::kAwaitRequest), ElementsAre(Pair(State::kSent, State::kReturning)));
}

TEST(CallStageTest, ItEndsOnce) {
  EXPECT_THAT(Of(Event::kEndSoon),
              ElementsAre(Pair(State::kNew, State::kEnding), Pair(State::kQueued, State::kEnding),
                          Pair(State::kSent, State::kEnding), Pair(State::kReturning, State::kEnding),
                          Pair(State::kCarried, State::kEnding)));
  EXPECT_THAT(Of(Event::kHandOver),
              ElementsAre(Pair(State::kSent, State::kEnded), Pair(State::kCarried, State::kEnded),
                          Pair(State::kEnding, State::kEnded)));
}

}  // namespace
}  // namespace hawser::internal
