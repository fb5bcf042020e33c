#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_STATE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_STATE_H_

#include <cstdint>

namespace hawser::fabric {

// What a VerbsQueuePair goes through, as a table. Events of the connection manager that come late, or twice,
// are dropped before anything moves; kImpossible is what only a bug of ours could cause.
struct VerbsQueuePairState {
  enum class State : uint8_t {
    kIdle,        // Neither Connect() nor Accept() yet.
    kResolving,   // The address, then the route.
    kConnecting,  // rdma_connect() is called.
    kAccepting,   // rdma_accept() is called: work can be posted, and the peer may send already.
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
