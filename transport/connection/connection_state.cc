#include "hawser/transport/connection/connection_state.h"

namespace hawser::transport {
namespace {

using State = ConnectionState::State;
using Event = ConnectionState::Event;
constexpr State kReady = State::kReady, kDraining = State::kDraining, kFlushing = State::kFlushing,
                kClosed = State::kClosed, kImpossible = State::kImpossible;

// clang-format off
constexpr State kNext[5][5] = {
    //                established  drain called  exchanges done  failed, closed  all WRs flushed
    /* kConnecting */ {kReady,     kFlushing,    kImpossible,    kFlushing,      kImpossible},
    /* kReady      */ {kReady,     kDraining,    kImpossible,    kFlushing,      kImpossible},
    /* kDraining   */ {kDraining,  kDraining,    kFlushing,      kFlushing,      kImpossible},
    /* kFlushing   */ {kFlushing,  kFlushing,    kFlushing,      kFlushing,      kClosed},
    /* kClosed     */ {kClosed,    kClosed,      kClosed,        kClosed,        kImpossible},
};
// clang-format on

}  // namespace

State ConnectionState::Next(State state, Event event) {
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

const char* ConnectionState::Name(State state) {
  switch (state) {
    case State::kConnecting:
      return "connecting";
    case State::kReady:
      return "ready";
    case State::kDraining:
      return "draining";
    case State::kFlushing:
      return "flushing";
    case State::kClosed:
    case State::kImpossible:
      break;
  }
  return "closed";
}

}  // namespace hawser::transport
