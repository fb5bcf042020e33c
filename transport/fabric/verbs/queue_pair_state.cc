#include "hawser/transport/fabric/verbs/queue_pair_state.h"

namespace hawser::fabric {

VerbsQueuePairState::State VerbsQueuePairState::Next(State state, Event event) {
  constexpr State kResolving = State::kResolving, kConnecting = State::kConnecting,
                  kAccepting = State::kAccepting, kEstablished = State::kEstablished, kError = State::kError,
                  kNone = State::kImpossible;
  // clang-format off
  static constexpr State kNext[6][5] = {
      //                  connect     accept      resolved     connected     end
      /* kIdle        */ {kResolving, kAccepting, kNone,       kNone,        kError},
      /* kResolving   */ {kNone,      kNone,      kConnecting, kNone,        kError},
      /* kConnecting  */ {kNone,      kNone,      kNone,       kEstablished, kError},
      /* kAccepting   */ {kNone,      kNone,      kNone,       kEstablished, kError},
      /* kEstablished */ {kNone,      kNone,      kNone,       kNone,        kError},
      /* kError       */ {kNone,      kNone,      kNone,       kNone,        kError},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

}  // namespace hawser::fabric
