// The tables by which queue pairs move.

#include "hawser/transport/fabric/tcp/queue_pair_state.h"

#include <vector>

#include "gtest/gtest.h"
#include "hawser/transport/fabric/verbs/queue_pair_state.h"

namespace hawser::fabric {
namespace {

template <typename Machine>
struct Cell {
  typename Machine::State state;
  typename Machine::Event event;
  typename Machine::State next;

  bool operator==(const Cell&) const = default;
};

// The cells that are possible, but for those of kEnd.
template <typename Machine>
std::vector<Cell<Machine>> Cells() {
  using State = typename Machine::State;
  using Event = typename Machine::Event;
  std::vector<Cell<Machine>> cells;
  for (int state = 0; state < static_cast<int>(State::kImpossible); ++state) {
    for (int event = 0; event < static_cast<int>(Event::kEnd); ++event) {
      const State next = Machine::Next(static_cast<State>(state), static_cast<Event>(event));
      if (next == State::kImpossible) continue;
      cells.push_back({static_cast<State>(state), static_cast<Event>(event), next});
    }
  }
  return cells;
}

TEST(TcpQueuePairStateTest, EachStepHasItsState) {
  using S = TcpQueuePairState::State;
  using E = TcpQueuePairState::Event;
  const std::vector<Cell<TcpQueuePairState>> cells = {
      {S::kIdle, E::kConnect, S::kConnecting},       {S::kIdle, E::kAccept, S::kGreeting},
      {S::kConnecting, E::kConnected, S::kSecuring}, {S::kSecuring, E::kSecured, S::kGreeting},
      {S::kGreeting, E::kAgreed, S::kEstablished},   {S::kEstablished, E::kRefuse, S::kRefusing},
      {S::kRefusing, E::kRefused, S::kError},
  };
  EXPECT_TRUE(Cells<TcpQueuePairState>() == cells);
}

TEST(VerbsQueuePairStateTest, EachStepHasItsState) {
  using S = VerbsQueuePairState::State;
  using E = VerbsQueuePairState::Event;
  const std::vector<Cell<VerbsQueuePairState>> cells = {
      {S::kIdle, E::kConnect, S::kResolving},
      {S::kIdle, E::kAccept, S::kAnswering},
      {S::kResolving, E::kResolved, S::kCreating},
      {S::kCreating, E::kCreated, S::kConnecting},
      {S::kConnecting, E::kResponse, S::kMoving},
      {S::kConnecting, E::kConnected, S::kEstablished},  // On iWARP.
      {S::kMoving, E::kConnected, S::kEstablished},
      {S::kAnswering, E::kAnswered, S::kAccepting},
      {S::kAnswering, E::kConnected, S::kEstablished},  // The event came before the result of the command.
      {S::kAccepting, E::kConnected, S::kEstablished},
  };
  EXPECT_TRUE(Cells<VerbsQueuePairState>() == cells);
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

}  // namespace
}  // namespace hawser::fabric
