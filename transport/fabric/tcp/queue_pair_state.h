#ifndef HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_STATE_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_STATE_H_

#include <cstdint>

namespace hawser::fabric {

// The states of a queue pair over TCP, and how events move it. A peer's message that does not fit the state
// is refused before any move. Only a bug of this library can lead to kImpossible.
struct TcpQueuePairState {
  enum class State : uint8_t {
    kIdle,         // Neither Connect() nor Accept() yet.
    kConnecting,   // Until the TCP connection is established,
    kSecuring,     // then until TLS is; without TLS not at all,
    kGreeting,     // then until both greetings are exchanged.
    kEstablished,  // Carries frames.
    kRefusing,     // Executes no further requests of the peer; a NAK is due, or was sent.
    kError,        // Everything posted is flushed.
    kImpossible,
  };
  enum class Event : uint8_t {
    kConnect,    // By Connect().
    kAccept,     // By Accept().
    kConnected,  // The TCP connection is established.
    kSecured,    // TLS is established, or there is none.
    kAgreed,     // Both greetings are exchanged.
    kRefuse,     // A request of the peer was not allowed, or found no receive for too long.
    kRefused,    // The NAK was sent, and this side is in error, too. Not after RNR: then only the peer is.
    kEnd,        // A failure, or Disconnect().
  };
  static State Next(State state, Event event);
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_STATE_H_
