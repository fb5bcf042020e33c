#ifndef HAWSER_RPC_INTERCEPTOR_H_
#define HAWSER_RPC_INTERCEPTOR_H_

// Names the tenant in each call of a channel: options.interceptors = {std::make_shared<Stamp>("blue")}.
//
//   class Stamp : public hawser::Interceptor {
//    public:
//     explicit Stamp(std::string tenant) : tenant_(std::move(tenant)) {}
//     absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning& call) override {
//       call.outgoing_metadata.Add("tenant", tenant_);
//       return nullptr;  // Its end does not matter.
//     }
//
//    private:
//     const std::string tenant_;
//   };

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/rpc/metadata.h"
#include "hawser/rpc/method.h"
#include "hawser/tls/peer_identity.h"

namespace hawser {

// Sees the calls of a channel (ChannelOptions::interceptors) or of a server (ServerOptions::interceptors),
// whatever their methods: for measuring, tracing and quotas. A client's calls begin in Send(). A server's
// begin right before their handlers, so a request that the library itself refuses is not seen. Calls of the
// built-in services are seen, such as health checks: IsBuiltIn(method) (rpc/method.h). Several interceptors
// begin in the order of the option and end in the reverse order.
//
// Thread:   any; those of different calls at once. At a client Begin() runs inside Call::Send(), and OnEnd()
//           where a callback of Then() would. At a server Begin() runs where the handler does, and OnEnd()
//           after it there or, if the handler deferred, inside DeferredCall::Finish(). So neither takes a
//           lock that is held around Send() or Finish(), and neither blocks on a poller. A call that one of
//           them makes has the interceptors of its own channel: a call of the same channel would lead to a
//           further one without end.
// Lifetime: shared by its channel, or server, and their calls. Calls may begin and end after the Channel, or
//           the Server, is destroyed. So it owns what it uses.
class Interceptor {
 public:
  virtual ~Interceptor() = default;

  enum class Side {
    kClient,  // This process makes the call; at a server program with ServerContext::peer().
    kServer,  // A handler of this process is called; at a client program that of ChannelOptions::services.
  };

  // A call that begins. Valid during Begin().
  struct Beginning {
    Side side;
    const Method& method;
    const std::string& peer_address;  // "tcp://10.0.0.7:51234".
    // The names in the peer's certificate; `is_authenticated` is false without credentials. At a client: the
    // peer of the connection that is up when Begin() runs, not authenticated if none is. The call may be sent
    // over a later one.
    const PeerIdentity& peer_identity;
    // The metadata of the request. At a client it includes what earlier interceptors added, and is valid
    // until the next Add().
    MetadataView metadata;
    // Goes along with the request at a client, with the answer at a server. Add to it.
    Metadata& outgoing_metadata;
  };

  // A call that has begun. Destroyed right after OnEnd().
  class Call {
   public:
    virtual ~Call() = default;
    // Runs once; not in a child after fork(). At a client `status` is the call's result; only a Wait() that
    // gave up because a callback holds the poller has returned another one before. At a server it is the
    // handler's answer, also if the caller has stopped waiting. An exception is logged and dropped.
    virtual void OnEnd(const absl::Status& status) = 0;
  };

  // nullptr: its end does not matter. Not OK: the call ends with that, unsent or without its handler; the
  // interceptors after this one do not see it, those before hear how it ends. An exception is Internal; the
  // log has its text, which does not cross.
  virtual absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning& call) = 0;
};

}  // namespace hawser

#endif  // HAWSER_RPC_INTERCEPTOR_H_
