#ifndef HAWSER_TRANSPORT_CONNECTION_CONNECTION_STATE_H_
#define HAWSER_TRANSPORT_CONNECTION_CONNECTION_STATE_H_

#include <cstdint>

namespace hawser::transport {

// The whole life of a connection, and how events move it: kNext in connection_state.cc. Only a bug of this
// library can lead to kImpossible.
struct ConnectionState {
  enum class State : uint8_t { kConnecting, kReady, kDraining, kFlushing, kClosed, kImpossible };
  enum class Event : uint8_t { kEstablished, kDrainCalled, kExchangesDone, kFailed, kFlushed };
  static State Next(State state, Event event);
  static const char* Name(State state);  // "ready".
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_CONNECTION_STATE_H_
