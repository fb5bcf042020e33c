// The tables by which queue pairs move.

#include "hawser/transport/fabric/tcp/queue_pair_state.h"

#include <set>

#include "gtest/gtest.h"
#include "hawser/transport/fabric/verbs/queue_pair_state.h"

namespace hawser::fabric {
namespace {

// States that follow `state`, by any event but the end.
template <typename Machine>
std::set<typename Machine::State> After(typename Machine::State state) {
  std::set<typename Machine::State> states;
  for (int event = 0; event < static_cast<int>(Machine::Event::kEnd); ++event) {
    const auto next = Machine::Next(state, static_cast<typename Machine::Event>(event));
    if (next != Machine::State::kImpossible) states.insert(next);
  }
  return states;
}

template <typename Machine>
std::set<typename Machine::State> ReachedFrom(typename Machine::State first) {
  std::set<typename Machine::State> reached = {first};
  for (bool grows = true; grows;) {
    const size_t before = reached.size();
    for (const auto state : std::set<typename Machine::State>(reached)) reached.merge(After<Machine>(state));
    grows = reached.size() > before;
  }
  return reached;
}

template <typename Machine>
class QueuePairStateTest : public ::testing::Test {};

using Machines = ::testing::Types<TcpQueuePairState, VerbsQueuePairState>;
TYPED_TEST_SUITE(QueuePairStateTest, Machines);

TYPED_TEST(QueuePairStateTest, AnythingMayEnd) {
  using State = typename TypeParam::State;
  for (int state = 0; state < static_cast<int>(State::kImpossible); ++state) {
    EXPECT_EQ(TypeParam::Next(static_cast<State>(state), TypeParam::Event::kEnd), State::kError) << state;
  }
}

TYPED_TEST(QueuePairStateTest, NothingFollowsTheEnd) {
  EXPECT_TRUE(After<TypeParam>(TypeParam::State::kError).empty());
}

TYPED_TEST(QueuePairStateTest, BothSidesGetToAConnectionAndNeverBackFromIt) {
  using State = typename TypeParam::State;
  using Event = typename TypeParam::Event;
  for (const Event first : {Event::kConnect, Event::kAccept}) {
    EXPECT_TRUE(ReachedFrom<TypeParam>(TypeParam::Next(State::kIdle, first)).count(State::kEstablished));
  }
  for (const State state : ReachedFrom<TypeParam>(State::kEstablished)) EXPECT_GE(state, State::kEstablished);
}

TYPED_TEST(QueuePairStateTest, ItIsConnectedOrAcceptedOnce) {
  using State = typename TypeParam::State;
  using Event = typename TypeParam::Event;
  for (int state = static_cast<int>(State::kIdle) + 1; state < static_cast<int>(State::kImpossible);
       ++state) {
    EXPECT_EQ(TypeParam::Next(static_cast<State>(state), Event::kConnect), State::kImpossible) << state;
    EXPECT_EQ(TypeParam::Next(static_cast<State>(state), Event::kAccept), State::kImpossible) << state;
  }
}

}  // namespace
}  // namespace hawser::fabric
