#ifndef HAWSER_TRANSPORT_CONNECTION_SLOT_STATE_H_
#define HAWSER_TRANSPORT_CONNECTION_SLOT_STATE_H_

#include <cstdint>

// The states of a slot, one table for each side. A message that fits no state is the peer's violation, and
// detected before any state changes. Only a bug of ours could cause kImpossible.
namespace hawser::transport {

// A slot at the side that sends requests.
struct RequesterSlot {
  enum class State : uint8_t {
    kFree,
    kWaiting,    // For the response.
    kReceiving,  // A large response was announced, and is READ.
    kAbandoned,  // The handler has its result; the slot waits for the response.
    kStopping,   // As kAbandoned, and READs of the response are outstanding. The handler waits for these if
                 // they fill memory of the program's own (Landing).
    kImpossible,
  };
  enum class Event : uint8_t {
    kSend,
    kAnswered,   // The response came whole, was refused, or is not wanted.
    kAnnounced,  // A large one.
    kRead,       // All of that is here.
    kGiveUp,     // At the deadline, or cancelled.
    kStopped,    // No READ is outstanding any more.
  };
  static State Next(State state, Event event);
};

inline RequesterSlot::State RequesterSlot::Next(State state, Event event) {
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

// A slot at the side that answers them.
struct ResponderSlot {
  enum class State : uint8_t {
    kFree,
    kReceiving,  // A large request was announced, and is READ.
    kStopping,   // Its caller does not wait any more, and READs are outstanding.
    kRunning,    // The handler has the request.
    kCancelled,  // As kRunning, and it was notified that its caller no longer waits.
    kRefused,    // The handler is to answer with an error.
    kGranted,    // The peer may READ the large response.
    kImpossible,
  };
  enum class Event : uint8_t {
    kWhole,      // A request came.
    kAnnounced,  // A large one.
    kRead,       // All of that is here.
    kStop,       // Its caller does not wait any more, and READs are outstanding.
    kRefuse,     // It is not taken, or not wanted any more.
    kCancel,     // The handler is notified that its caller no longer waits.
    kAnswer,
    kGrant,    // Answered with something large.
    kRelease,  // The peer has READ that.
  };
  static State Next(State state, Event event);
};

inline ResponderSlot::State ResponderSlot::Next(State state, Event event) {
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

#endif  // HAWSER_TRANSPORT_CONNECTION_SLOT_STATE_H_
