#include "hawser/rpc/internal/call_state.h"

namespace hawser::internal {

CallStage::State CallStage::Next(State state, Event event) {
  constexpr State kQueued = State::kQueued, kSent = State::kSent, kReturning = State::kReturning,
                  kEnding = State::kEnding, kEnded = State::kEnded, kNone = State::kImpossible;
  // clang-format off
  static constexpr State kNext[6][5] = {
      //               queue    send   take back   end soon  hand over
      /* kNew       */ {kQueued, kSent, kNone,      kEnding,  kNone},
      /* kQueued    */ {kQueued, kSent, kNone,      kEnding,  kNone},
      /* kSent      */ {kNone,   kNone, kReturning, kEnding,  kEnded},
      /* kReturning */ {kQueued, kSent, kNone,      kEnding,  kNone},
      /* kEnding    */ {kNone,   kNone, kNone,      kNone,    kEnded},
      /* kEnded     */ {kNone,   kNone, kNone,      kNone,    kNone},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

Handover::State Handover::Next(State state, Event event) {
  constexpr State kNeither = State::kNeither, kWaiter = State::kWaiter, kCallback = State::kCallback,
                  kResult = State::kResult, kResultCallback = State::kResultCallback,
                  kGivenUp = State::kGivenUp, kNone = State::kImpossible;
  // Where the result is there first, a caller that waits, or gives up, takes it, and the state stays; a
  // callback waits for the next turn.
  // clang-format off
  static constexpr State kNext[6][6] = {
      //                    wait     hook             unhook    give up   result   call back
      /* kNeither        */ {kWaiter, kCallback,       kNeither, kNone,    kResult, kNone},
      /* kWaiter         */ {kNone,   kNone,           kNone,    kGivenUp, kResult, kNone},
      /* kCallback       */ {kNone,   kNone,           kNeither, kNone,    kResult, kNone},
      /* kResult         */ {kResult, kResultCallback, kResult,  kResult,  kNone,   kResult},
      /* kResultCallback */ {kNone,   kNone,           kResult,  kNone,    kNone,   kResult},
      /* kGivenUp        */ {kNone,   kNone,           kNone,    kNone,    kResult, kNone},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

}  // namespace hawser::internal
