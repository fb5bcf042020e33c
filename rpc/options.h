#ifndef HAWSER_RPC_OPTIONS_H_
#define HAWSER_RPC_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/transport/options.h"

namespace hawser {

class Server;
class ServerContext;
class Service;

namespace internal {
class CancelScope;
}
namespace transport {
class Runtime;
}

// What the options below are made of.
using transport::BufferPoolOptions;
using transport::ConnectionOptions;
using transport::PollerOptions;
using transport::PollingMode;
using transport::Runtime;

// Of one call.
struct CallOptions {
  // For a call that a handler makes to answer its own: it ends with that one's deadline, and is cancelled when
  // the caller of that one stops waiting before it is answered. Change what is returned at will.
  static CallOptions For(ServerContext& context);

  // When the caller stops waiting. The earlier of the two counts; neither given:
  // ChannelOptions::default_timeout.
  absl::Time deadline = absl::InfiniteFuture();
  absl::Duration timeout = absl::InfiniteDuration();
  // While the channel has no connection: true waits for one until the deadline, false fails with Unavailable
  // when the attempt that is under way fails, or with ResourceExhausted if the server rejected it for want of
  // memory or of connections.
  bool wait_for_ready = false;
  // Set by For().
  std::shared_ptr<internal::CancelScope> scope = nullptr;
};

// How a message of the peer is read: Cap'n Proto's own guards against a small message that is costly to
// traverse. A reader that goes beyond one gets ResourceExhausted.
struct ReadLimits {
  // Bytes that may be traversed per byte of the message, beside the first 8 MiB. Each call of a getter counts
  // the size of what it returns again: a loop keeps it in a variable.
  // Why 16: a handler may look at a large field some ten times. A hostile message whose pointers all lead to
  // the same objects makes a handler that follows each of them do as much work. That is 2 words of 8 bytes
  // per byte, and a word took 5 ns to follow on the machine of this writing. The peer has sent each of those
  // bytes; a message below 512 KiB costs no more than the first 8 MiB do, about 5 ms.
  uint32_t traversal_factor = 16;
  // Structs and lists inside each other.
  int nesting_max = 64;
};

enum class ChannelState { kConnecting, kReady, kTransientFailure, kClosed };

// "connecting", "ready", "transient failure", "closed".
absl::string_view ToString(ChannelState state);
std::ostream& operator<<(std::ostream& out, ChannelState state);

struct ChannelOptions {
  absl::Duration default_timeout = absl::Seconds(10);  // Infinite: calls without a deadline.
  absl::Duration connect_timeout = absl::Seconds(5);   // Of one attempt, handshake included.
  // Between attempts to reconnect: doubles from min to max, each time between half and all of it at random.
  absl::Duration backoff_min = absl::Milliseconds(20);
  absl::Duration backoff_max = absl::Seconds(5);
  // What this client offers to the server (server push): a second, reverse connection is dialed for them. The
  // services outlive the channel. Their handlers run on the channel's poller.
  std::vector<Service*> services = {};
  // Runs at each change, where a callback of Then() would (rpc/call.h).
  std::function<void(ChannelState state, const absl::Status& why)> on_state_change = {};
  ConnectionOptions connection = {};
  ReadLimits read = {};
  // The channel uses the memory and the pollers of this server: what it receives is forwarded by
  // ServerContext::Attach() without a copy, and what the server receives by Call::Attach(). nullptr: those of
  // the process. Since they share pollers, handlers of the server that run on them cannot Wait() for calls of
  // the channel. The server may end before the channel.
  Server* server = nullptr;
  // Likewise, named by themselves; nullptr: those of `server`, or of the process.
  std::shared_ptr<Runtime> runtime = nullptr;
};

struct ServerOptions {
  // Threads that poll, one at least; connections are dealt out to them in turn.
  int pollers = 1;
  PollerOptions poller = {};
  BufferPoolOptions pool = {};
  // Memory and pollers that others use too, of one fabric, instead of the server's own: the three above say
  // nothing then.
  std::shared_ptr<Runtime> runtime = nullptr;
  // Where handlers run; empty: on the poller, which they must not block. The poller calls this for each request,
  // so it queues `handler`, which is move-only, and returns. A `handler` that is destroyed unrun answers
  // Unavailable. What runs them outlives the server.
  std::function<void(absl::AnyInvocable<void()> handler)> executor = {};
  // The destructor of the server waits for DeferredCalls that are not finished, at most this long for all of
  // them together. Then it names them in the log and goes without them: they can still be finished, which has no
  // effect. Until the last of them is, the server's pollers and memory stay.
  absl::Duration handler_grace = absl::Seconds(5);
  ConnectionOptions connection = {};
  // Connections at most, in all and from one host (an IPv4 address, or an IPv6 network of 64 bits); a further
  // one is rejected with a reason. So is one whose receives would take more than three quarters of `pool`:
  // the default pool has room for some 20,000 connections of 32 slots, or 70,000 of 8. A connection that was
  // closed counts until its handlers have ended.
  uint32_t connections_max = 65536;
  uint32_t connections_per_host_max = 16384;
  ReadLimits read = {};
};

}  // namespace hawser

#endif  // HAWSER_RPC_OPTIONS_H_
