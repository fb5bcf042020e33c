#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_STATE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_STATE_H_

#include <cstdint>

namespace hawser::fabric {

// The states of a VerbsQueuePair, as a table. The control thread of the device carries out what takes long;
// see VerbsDeviceQp. Its results come in the order of the commands, but may come after events of the
// connection manager that follow from them. Late or repeated events of the connection manager are dropped
// before any move. Only a bug of this library can lead to kImpossible.
struct VerbsQueuePairState {
  enum class State : uint8_t {
    kIdle,        // Neither Connect() nor Accept() yet.
    kResolving,   // The address, then the route.
    kCreating,    // The control thread creates the ibv_qp.
    kConnecting,  // It calls, or has called, rdma_connect(): the peer may answer.
    kMoving,      // The peer has accepted: it moves the ibv_qp, and calls rdma_establish().
    kAnswering,   // The side that accepts: it creates and moves the ibv_qp, and calls rdma_accept().
    kAccepting,   // rdma_accept() was called: work can be posted, and the peer may already send.
    kEstablished,
    kError,  // Everything posted is being flushed.
    kImpossible,
  };
  enum class Event : uint8_t {
    kConnect,    // By Connect().
    kAccept,     // By Accept().
    kResolved,   // The route is known.
    kCreated,    // There is an ibv_qp, in INIT.
    kResponse,   // The peer has accepted.
    kAnswered,   // rdma_accept() was called, says the control thread, or a message of the peer.
    kConnected,  // Both sides are ready to send.
    kEnd,        // A failure, or Disconnect().
  };
  static State Next(State state, Event event);
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_STATE_H_
