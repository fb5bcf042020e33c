#include "hawser/transport/fabric/tcp/queue_pair_state.h"

namespace hawser::fabric {

TcpQueuePairState::State TcpQueuePairState::Next(State state, Event event) {
  constexpr State kConnecting = State::kConnecting, kSecuring = State::kSecuring,
                  kGreeting = State::kGreeting, kEstablished = State::kEstablished,
                  kRefusing = State::kRefusing, kError = State::kError, kNone = State::kImpossible;
  // clang-format off
  static constexpr State kNext[7][8] = {
      //                  connect      accept     connected  secured    agreed        refuse     refused end
      /* kIdle        */ {kConnecting, kGreeting, kNone,     kNone,     kNone,        kNone,     kNone,  kError},
      /* kConnecting  */ {kNone,       kNone,     kSecuring, kNone,     kNone,        kNone,     kNone,  kError},
      /* kSecuring    */ {kNone,       kNone,     kNone,     kGreeting, kNone,        kNone,     kNone,  kError},
      /* kGreeting    */ {kNone,       kNone,     kNone,     kNone,     kEstablished, kNone,     kNone,  kError},
      /* kEstablished */ {kNone,       kNone,     kNone,     kNone,     kNone,        kRefusing, kNone,  kError},
      /* kRefusing    */ {kNone,       kNone,     kNone,     kNone,     kNone,        kNone,     kError, kError},
      /* kError       */ {kNone,       kNone,     kNone,     kNone,     kNone,        kNone,     kNone,  kError},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

}  // namespace hawser::fabric
