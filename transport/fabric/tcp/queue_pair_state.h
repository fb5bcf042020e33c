#ifndef HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_STATE_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_STATE_H_

#include <cstdint>

namespace hawser::fabric {

// The states of a queue pair over TCP, and how events move it. What a peer sends that fits no state is
// refused before anything moves; kImpossible is what only a bug of ours could cause.
struct TcpQueuePairState {
  enum class State : uint8_t {
    kIdle,         // Neither Connect() nor Accept() yet.
    kConnecting,   // Until the TCP connection is there,
    kGreeting,     // then until both sides have greeted.
    kEstablished,  // Carries frames.
    kRefusing,     // Executes nothing more of what the peer asks for; a NAK says so, or has said so.
    kError,        // Everything posted is flushed.
    kImpossible,
  };
  enum class Event : uint8_t {
    kConnect,    // By Connect().
    kAccept,     // By Accept().
    kConnected,  // The TCP connection is there.
    kAgreed,     // Both sides have greeted.
    kRefuse,     // The peer asked for what it may not have, or had no receive for too long.
    kRefused,    // The NAK is out, and this side is in error, too. Not after RNR: then only the peer is.
    kEnd,        // A failure, or Disconnect().
  };
  static State Next(State state, Event event);
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_STATE_H_
