#include "hawser/transport/fabric/verbs/queue_pair_state.h"

namespace hawser::fabric {

VerbsQueuePairState::State VerbsQueuePairState::Next(State state, Event event) {
  constexpr State kResolving = State::kResolving, kCreating = State::kCreating,
                  kConnecting = State::kConnecting, kMoving = State::kMoving, kAnswering = State::kAnswering,
                  kAccepting = State::kAccepting, kEstablished = State::kEstablished, kError = State::kError,
                  kNone = State::kImpossible;
  // clang-format off
  static constexpr State kNext[9][8] = {
      //                  connect     accept      resolved   created      response  answered    connected  end
      /* kIdle        */ {kResolving, kAnswering, kNone,     kNone,       kNone,    kNone,      kNone,        kError},
      /* kResolving   */ {kNone,      kNone,      kCreating, kNone,       kNone,    kNone,      kNone,        kError},
      /* kCreating    */ {kNone,      kNone,      kNone,     kConnecting, kNone,    kNone,      kNone,        kError},
      /* kConnecting  */ {kNone,      kNone,      kNone,     kNone,       kMoving,  kNone,      kEstablished, kError},
      /* kMoving      */ {kNone,      kNone,      kNone,     kNone,       kNone,    kNone,      kEstablished, kError},
      /* kAnswering   */ {kNone,      kNone,      kNone,     kNone,       kNone,    kAccepting, kEstablished, kError},
      /* kAccepting   */ {kNone,      kNone,      kNone,     kNone,       kNone,    kNone,      kEstablished, kError},
      /* kEstablished */ {kNone,      kNone,      kNone,     kNone,       kNone,    kNone,      kNone,        kError},
      /* kError       */ {kNone,      kNone,      kNone,     kNone,       kNone,    kNone,      kNone,        kError},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

}  // namespace hawser::fabric
