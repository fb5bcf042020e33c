#include "hawser/transport/slot_state.h"

namespace hawser::transport {

RequesterSlot::State RequesterSlot::Next(State state, Event event) {
  constexpr State kFree = State::kFree, kWaiting = State::kWaiting, kReceiving = State::kReceiving,
                  kAbandoned = State::kAbandoned, kStopping = State::kStopping, kNone = State::kImpossible;
  // clang-format off
  static constexpr State kNext[5][6] = {
      //                send      answered announced   read   give up     stopped
      /* kFree      */ {kWaiting, kNone,   kNone,      kNone, kNone,      kNone},
      /* kWaiting   */ {kNone,    kFree,   kReceiving, kNone, kAbandoned, kNone},
      /* kReceiving */ {kNone,    kNone,   kNone,      kFree, kStopping,  kNone},
      /* kAbandoned */ {kNone,    kFree,   kNone,      kNone, kNone,      kNone},
      /* kStopping  */ {kNone,    kNone,   kNone,      kNone, kNone,      kFree},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

ResponderSlot::State ResponderSlot::Next(State state, Event event) {
  constexpr State kFree = State::kFree, kReceiving = State::kReceiving, kStopping = State::kStopping,
                  kRunning = State::kRunning, kCancelled = State::kCancelled, kRefused = State::kRefused,
                  kGranted = State::kGranted, kNone = State::kImpossible;
  // clang-format off
  static constexpr State kNext[7][9] = {
      //                whole     announced   read      stop       refuse    cancel answer grant     release
      /* kFree      */ {kRunning, kReceiving, kNone,    kNone,     kRefused, kNone, kNone, kNone,    kNone},
      /* kReceiving */ {kNone,    kNone,      kRunning, kStopping, kRefused, kNone, kNone, kNone,    kNone},
      /* kStopping  */ {kNone,    kNone,      kNone,    kNone,     kRefused, kNone, kNone, kNone,    kNone},
      /* kRunning   */ {kNone,    kNone,      kNone,    kNone,     kNone,    kCancelled, kFree, kGranted, kNone},
      /* kCancelled      */ {kNone,    kNone,      kNone,    kNone,     kNone,    kNone, kFree, kGranted, kNone},
      /* kRefused   */ {kNone,    kNone,      kNone,    kNone,     kNone,    kNone, kFree, kGranted, kNone},
      /* kGranted   */ {kNone,    kNone,      kNone,    kNone,     kNone,    kNone, kNone, kNone,    kFree},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

}  // namespace hawser::transport
