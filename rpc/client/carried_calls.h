#ifndef HAWSER_RPC_CLIENT_CARRIED_CALLS_H_
#define HAWSER_RPC_CLIENT_CARRIED_CALLS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/client/call_queue.h"
#include "hawser/rpc/client/untyped_call.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

class CallSender;

// The calls of one connection that others of its channel carry (ConnectionGroup): another connection sends
// the request of a call whose own has none that is ready, and passes on the result. To do so it has a call of
// its own, the carrier, which takes over the request and what is needed to send it again. The call is in
// kCarried meanwhile. A carrier keeps a reference to itself, and the call one to its carrier. What comes of a
// carrier once its call has ended is dropped. A call with ReceiveInto() ends with its carrier, never before
// it: the response may be READ into the caller's memory until then.
// Thread:   on the poller of the connection whose calls these are, unless said otherwise.
// Lifetime: a part of that connection's ChannelCore, whose calls these are.
class CarriedCalls {
 public:
  explicit CarriedCalls(transport::Poller& poller);

  // `other` is ready, and sends the request of `call`.
  void Carry(UntypedCall& call, const std::shared_ptr<CallSender>& other);
  void Forget(UntypedCall& call) { (call.lands() ? landing_ : calls_).Remove(call); }
  // `call` ends without its carrier's result, or, if it lands(), cancels its carrier.
  void End(UntypedCall& call, absl::StatusCode code, absl::string_view why);
  void EndAll(const absl::Status& why);

  // ---- On the poller of `carrier`.

  // It has its result.
  static void PassOn(UntypedCall& carrier);
  // Its connection is not ready: the call has its request back, and starts again.
  static void GiveBack(UntypedCall& carrier);

 private:
  static void Prepare(UntypedCall& carrier, UntypedCall& call, CallSender& sender);
  // On the poller of `carrier`. It ends at once if the call has ended.
  static void Start(UntypedCall& carrier);
  // On the poller of `call`: the result of its carrier, or its request.
  static void OnResult(UntypedCall& call, absl::StatusOr<transport::IncomingMessagePtr>&& result);
  static void TakeBack(UntypedCall& call, transport::OutgoingMessagePtr request, Sent sent, uint8_t resends);
  // False: the call has ended meanwhile.
  static bool DropCarrier(UntypedCall& call);
  // It is in no queue any more.
  static void EndWithoutCarrier(UntypedCall& call, absl::StatusCode code, absl::string_view why);

  CallQueue calls_;
  CallQueue landing_;  // Those that lands() is true of. Their carriers have the deadlines.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CARRIED_CALLS_H_
