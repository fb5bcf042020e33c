// Each cell of the state tables of messages and slots.

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/transport/connection/inbound.h"
#include "hawser/transport/connection/outbound.h"
#include "hawser/transport/connection/slot_state.h"

namespace hawser::transport {
namespace {

template <typename Machine>
struct Walk {
  using State = typename Machine::State;
  using Event = typename Machine::Event;

  static std::vector<State> States() {
    std::vector<State> states;
    for (int state = 0; state < static_cast<int>(State::kImpossible); ++state)
      states.push_back(static_cast<State>(state));
    return states;
  }
  // The states in which `event` is possible, with the states to which it leads.
  static std::vector<std::pair<State, State>> Of(Event event) {
    std::vector<std::pair<State, State>> cells;
    for (const State state : States()) {
      const State next = Machine::Next(state, event);
      if (next != State::kImpossible) cells.push_back({state, next});
    }
    return cells;
  }
};

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(OutboundTest, MemoryIsFreeOnlyOnceProvedAndRevoked) {
  using S = Outbound::State;
  using E = Outbound::Event;
  using W = Walk<Outbound>;
  EXPECT_THAT(W::Of(E::kPost), ElementsAre(Pair(S::kIdle, S::kPosted)));
  EXPECT_THAT(W::Of(E::kCopied), ElementsAre(Pair(S::kIdle, S::kCompleted)));
  EXPECT_THAT(W::Of(E::kComplete),
              ElementsAre(Pair(S::kPosted, S::kCompleted), Pair(S::kReleased, S::kIdle),
                          Pair(S::kReleasedRevoking, S::kRevoking), Pair(S::kEnding, S::kEnding)));
  EXPECT_THAT(W::Of(E::kRelease), ElementsAre(Pair(S::kPosted, S::kReleased), Pair(S::kCompleted, S::kIdle)));
  EXPECT_THAT(W::Of(E::kRevoke),
              ElementsAre(Pair(S::kIdle, S::kRevoking), Pair(S::kPosted, S::kReleasedRevoking),
                          Pair(S::kCompleted, S::kRevoking)));
  EXPECT_THAT(W::Of(E::kRevoked), ElementsAre(Pair(S::kReleasedRevoking, S::kReleased),
                                              Pair(S::kRevoking, S::kIdle), Pair(S::kEnding, S::kEnding)));
}

TEST(OutboundTest, AfterAFailureMemoryIsKeptUntilTheFabricIsGone) {
  using S = Outbound::State;
  using E = Outbound::Event;
  using W = Walk<Outbound>;
  EXPECT_THAT(W::Of(E::kFail), ElementsAre(Pair(S::kPosted, S::kEnding), Pair(S::kCompleted, S::kEnding),
                                           Pair(S::kReleased, S::kEnding)));
  for (const S state : W::States()) {
    const bool a_slot_has_it = state == S::kPosted || state == S::kCompleted;
    EXPECT_EQ(Outbound::Next(state, E::kFabricGone), a_slot_has_it ? S::kImpossible : S::kIdle);
  }
}

TEST(InboundTest, MemoryIsFreeOnlyOnceNoReadIsOutstanding) {
  using S = Inbound::State;
  using E = Inbound::Event;
  using W = Walk<Inbound>;
  EXPECT_THAT(W::Of(E::kAnnounced), ElementsAre(Pair(S::kIdle, S::kWaiting)));
  EXPECT_THAT(W::Of(E::kAdmitted), ElementsAre(Pair(S::kWaiting, S::kReading)));
  EXPECT_THAT(W::Of(E::kRead), ElementsAre(Pair(S::kReading, S::kIdle)));
  EXPECT_THAT(W::Of(E::kStopped), ElementsAre(Pair(S::kWaiting, S::kIdle), Pair(S::kReading, S::kStopping),
                                              Pair(S::kStopping, S::kStopping)));
  EXPECT_THAT(W::Of(E::kLastRead), ElementsAre(Pair(S::kStopping, S::kIdle)));
}

TEST(RequesterSlotTest, OnlyTheResponseAndTheLastReadFreeASlot) {
  using S = RequesterSlot::State;
  using E = RequesterSlot::Event;
  using W = Walk<RequesterSlot>;
  EXPECT_THAT(W::Of(E::kSend), ElementsAre(Pair(S::kFree, S::kWaiting)));
  EXPECT_THAT(W::Of(E::kAnswered), ElementsAre(Pair(S::kWaiting, S::kFree), Pair(S::kAbandoned, S::kFree)));
  EXPECT_THAT(W::Of(E::kAnnounced), ElementsAre(Pair(S::kWaiting, S::kReceiving)));
  EXPECT_THAT(W::Of(E::kRead), ElementsAre(Pair(S::kReceiving, S::kFree)));
  EXPECT_THAT(W::Of(E::kGiveUp),
              ElementsAre(Pair(S::kWaiting, S::kAbandoned), Pair(S::kReceiving, S::kStopping)));
  EXPECT_THAT(W::Of(E::kStopped), ElementsAre(Pair(S::kStopping, S::kFree)));
}

TEST(ResponderSlotTest, EachRequestIsAnsweredOnce) {
  using S = ResponderSlot::State;
  using E = ResponderSlot::Event;
  using W = Walk<ResponderSlot>;
  EXPECT_THAT(W::Of(E::kWhole), ElementsAre(Pair(S::kFree, S::kRunning)));
  EXPECT_THAT(W::Of(E::kAnnounced), ElementsAre(Pair(S::kFree, S::kReceiving)));
  EXPECT_THAT(W::Of(E::kRead), ElementsAre(Pair(S::kReceiving, S::kRunning)));
  EXPECT_THAT(W::Of(E::kStop), ElementsAre(Pair(S::kReceiving, S::kStopping)));
  EXPECT_THAT(W::Of(E::kRefuse), ElementsAre(Pair(S::kFree, S::kRefused), Pair(S::kReceiving, S::kRefused),
                                             Pair(S::kStopping, S::kRefused)));
  EXPECT_THAT(W::Of(E::kCancel), ElementsAre(Pair(S::kRunning, S::kCancelled)));
  EXPECT_THAT(W::Of(E::kAnswer), ElementsAre(Pair(S::kRunning, S::kFree), Pair(S::kCancelled, S::kFree),
                                             Pair(S::kRefused, S::kFree)));
  EXPECT_THAT(W::Of(E::kGrant), ElementsAre(Pair(S::kRunning, S::kGranted), Pair(S::kCancelled, S::kGranted),
                                            Pair(S::kRefused, S::kGranted)));
  EXPECT_THAT(W::Of(E::kRelease), ElementsAre(Pair(S::kGranted, S::kFree)));
}

}  // namespace
}  // namespace hawser::transport
