#ifndef HAWSER_RPC_SERVING_SERVING_H_
#define HAWSER_RPC_SERVING_SERVING_H_

#include <functional>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/serving/callback_gate.h"
#include "hawser/rpc/serving/handler_gate.h"
#include "hawser/rpc/wire/interception.h"

namespace hawser::internal {

// The services, and how their handlers run: the same for every connection of a server, or of a channel that
// offers services.
struct Serving {
  MethodTable methods;
  ReadLimits read;
  std::function<void(absl::AnyInvocable<void()> handler)> executor;  // Empty: handlers run on the poller.
  Interceptors interceptors;
  // Around handlers on the executor, OnCancel() callbacks, and the ends of intercepted calls.
  mutable HandlerGate handlers;
  // Encloses all code of the services that a channel offers, which may be destroyed right after the channel.
  // Null at a server, which ends when `handlers` and its pollers are empty.
  std::shared_ptr<CallbackGate> gate;
  std::function<absl::Status(const ServerContext& context)> authorize;  // Empty: every call may run.

  // There is no gate, no interceptor and no `authorize`, so that a call may go to its handler without a look
  // at each of them. Set by the server, when all of them are known.
  bool plain = false;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_SERVING_H_
