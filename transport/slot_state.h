#ifndef HAWSER_TRANSPORT_SLOT_STATE_H_
#define HAWSER_TRANSPORT_SLOT_STATE_H_

#include <cstdint>

// What the slot of a connection goes through, as a table for each side. What a peer sends that fits no state
// is a violation, and found before anything moves; kImpossible is what only a bug of ours could cause. A
// connection that has failed moves no slot any more.
namespace hawser::transport {

// A slot at the side that sends requests.
struct RequesterSlot {
  enum class State : uint8_t {
    kFree,
    kWaiting,    // For the response.
    kReceiving,  // A large response was announced, and is READ.
    kAbandoned,  // The handler has heard its end; the response, which frees the slot, has not come.
    kStopping,   // Likewise, and READs of the response are outstanding.
    kImpossible,
  };
  enum class Event : uint8_t {
    kSend,
    kAnswered,   // The response is here, or it is one that nothing wants, or that is refused.
    kAnnounced,  // A large one.
    kRead,       // All of that is here.
    kGiveUp,     // At the deadline, or cancelled.
    kStopped,    // No READ is outstanding any more.
  };
  static State Next(State state, Event event);
};

// A slot at the side that answers them.
struct ResponderSlot {
  enum class State : uint8_t {
    kFree,
    kReceiving,  // A large request was announced, and is READ.
    kStopping,   // Its caller does not wait any more, and READs are outstanding.
    kRunning,    // The handler has the request.
    kTold,       // Likewise, and has heard that its caller does not wait any more.
    kRefused,    // The handler was asked for an error.
    kGranted,    // The peer may READ the large response.
    kImpossible,
  };
  enum class Event : uint8_t {
    kWhole,      // A request came.
    kAnnounced,  // A large one.
    kRead,       // All of that is here.
    kStop,       // Its caller does not wait any more, and READs are outstanding.
    kRefuse,     // It is not taken, or not wanted any more.
    kCancel,     // The handler hears that its caller does not wait any more.
    kAnswer,
    kGrant,    // Answered with something large.
    kRelease,  // The peer has READ that.
  };
  static State Next(State state, Event event);
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SLOT_STATE_H_
