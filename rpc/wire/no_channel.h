#ifndef HAWSER_RPC_WIRE_NO_CHANNEL_H_
#define HAWSER_RPC_WIRE_NO_CHANNEL_H_

#include <memory>
#include <string>

#include "hawser/transport/runtime.h"

namespace hawser {
class Channel;
}

// Why a channel is null. ServerContext::peer() returns null when a client offers no services, so the client
// decides whether a handler that does not ask has one: the call of a stub then ends with an error, not the
// process.
namespace hawser::internal {

struct NoChannel {
  // The calls end on `poller`, which is of `runtime`.
  std::shared_ptr<transport::Runtime> runtime;
  transport::Poller* poller = nullptr;
  std::string peer_address;  // "tcp://10.0.0.7:51234". For the log: the text of the error does not have it.
  std::string why;           // The text of the error, which a handler may return to its caller.
};

// A null pointer that carries `why`, and so do copies of it. (It equals nullptr; a std::shared_ptr to nothing
// may own.)
// Thread: any.
std::shared_ptr<Channel> NullChannel(NoChannel why);

// What `null` carries. Null: nothing; it is not from NullChannel().
const NoChannel* WhyNull(const std::shared_ptr<Channel>& null);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_NO_CHANNEL_H_
