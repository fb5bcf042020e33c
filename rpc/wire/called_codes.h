#ifndef HAWSER_RPC_WIRE_CALLED_CODES_H_
#define HAWSER_RPC_WIRE_CALLED_CODES_H_

#include "hawser/transport/poller/called_out.h"

namespace hawser::internal {

// The code of the application that rpc/ calls on a poller, as the watchdog and late deadlines name it.

inline constexpr transport::CalledCode kHandler{
    "the handler of",
    "give the server an executor (ServerOptions::executor), or Defer() and answer from another thread"};
// A handler of a service that a channel offers, which has no executor.
inline constexpr transport::CalledCode kOfferedHandler{"the client's handler of",
                                                       "Defer() and answer from another thread"};
inline constexpr transport::CalledCode kExecutor{"the executor, given the handler of"};
inline constexpr transport::CalledCode kCallback{"the callback of"};
inline constexpr transport::CalledCode kInterceptor{"the interceptor of"};
inline constexpr transport::CalledCode kCoroutine{"a coroutine of"};
inline constexpr transport::CalledCode kOnCancel{"the OnCancel() callback of"};
inline constexpr transport::CalledCode kOnClosed{"the OnClosed() callback of"};
inline constexpr transport::CalledCode kOnStateChange{"on_state_change of"};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_CALLED_CODES_H_
