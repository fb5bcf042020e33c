#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_STATE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_STATE_H_

#include <cstdint>

namespace hawser::fabric {

// The states of a VerbsQueuePair, as a table. Late or repeated events of the connection manager are dropped
// before any move. Only a bug of this library can lead to kImpossible.
struct VerbsQueuePairState {
  enum class State : uint8_t {
    kIdle,        // Neither Connect() nor Accept() yet.
    kResolving,   // The address, then the route.
    kConnecting,  // rdma_connect() is called.
    kAccepting,   // rdma_accept() is called: work can be posted, and the peer may already send.
    kEstablished,
    kError,  // Everything posted is being flushed.
    kImpossible,
  };
  enum class Event : uint8_t {
    kConnect,    // By Connect().
    kAccept,     // By Accept().
    kResolved,   // The route is known, and there is an ibv_qp.
    kConnected,  // Both sides are ready to send.
    kEnd,        // A failure, or Disconnect().
  };
  static State Next(State state, Event event);
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_STATE_H_
