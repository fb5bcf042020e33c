#ifndef HAWSER_RPC_OPTIONS_H_
#define HAWSER_RPC_OPTIONS_H_

// The options of calls, channels and servers. Those of a server with many clients, for example:
//
//   hawser::ServerOptions options;
//   options.pollers = 4;
//   options.pool.limit_bytes = size_t{8} << 30;
//   options.connections_max = 40000;
//   options.connection.slots = 8;
//   options.connection.message_bytes_max = 4 << 20;

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/tls/credentials.h"
#include "hawser/transport/memory/pool_options.h"
#include "hawser/transport/wire/options.h"

namespace hawser {

class Interceptor;
class Metadata;
class ServerContext;
class Service;

namespace internal {
class CancelScope;
struct ServerExtensionFactory;

// CallOptions::scope. A copy of whole options has it, but braces cannot name that of others: gcc 12 destroys
// twice what the members of an aggregate hold that is made inside a co_await expression (rpc/task.h). An
// empty one bears that.
class ScopeRef {
 public:
  ScopeRef() = default;
  explicit ScopeRef(std::shared_ptr<CancelScope> scope) : scope_(std::move(scope)) {}
  explicit ScopeRef(const ScopeRef&) = default;
  explicit ScopeRef(ScopeRef&&) noexcept = default;
  ScopeRef& operator=(const ScopeRef&) = default;
  ScopeRef& operator=(ScopeRef&&) noexcept = default;

  const std::shared_ptr<CancelScope>& get() const { return scope_; }

 private:
  std::shared_ptr<CancelScope> scope_;
};
}  // namespace internal
namespace transport {
class Runtime;
}
namespace internal {
// What ChannelOptions::server needs of a Server, which is above the channels.
class RuntimeSource {
 public:
  // The runtime that serves, or would serve, URIs of `scheme` over `device`.
  virtual absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeOn(const std::string& scheme,
                                                                        const std::string& device) = 0;

 protected:
  ~RuntimeSource() = default;
};
}  // namespace internal

// Used by the options below.
using transport::BufferPoolOptions;
using transport::ConnectionOptions;
using transport::PollerOptions;
using transport::PollingMode;
using transport::Runtime;

// The options of one call.
struct CallOptions {
  // For a call that a handler makes to answer its own call. It has the deadline of the handler's call, and is
  // cancelled when that caller stops waiting before the answer. If the handler's call has no deadline, or one
  // that is more than 71 minutes away and so does not travel, it has that of ChannelOptions::default_timeout:
  // how long a thread of this process waits is not for a client alone to say. It carries on the trace of the
  // handler's call (rpc/trace.h), but does not have its metadata. The result may be changed at will.
  static CallOptions For(ServerContext& context);

  // When the caller stops waiting. The earlier of the two counts. An infinite one is the same as none;
  // without both it is ChannelOptions::default_timeout. So only a channel whose default_timeout is infinite
  // makes calls without a deadline. In the past, zero or negative: the call is not sent, and ends
  // with DeadlineExceeded. The server does not get one that is more than 71 minutes away: for the handler the
  // call has no deadline, and is cancelled when the caller stops waiting.
  absl::Time deadline = absl::InfiniteFuture();
  absl::Duration timeout = absl::InfiniteDuration();
  // While the channel has no connection: true waits for one until the deadline, false fails when the current
  // attempt fails: with ResourceExhausted if the server rejected it for lack of memory or connections, with
  // Unauthenticated if TLS failed because one side does not trust the other (ChannelOptions::credentials),
  // else with Unavailable.
  bool wait_for_ready = false;
  // Goes along with the request (rpc/metadata.h). Copied when a call is created with these options: it need
  // not live longer than that. nullptr: none.
  const Metadata* metadata = nullptr;
  // Set by For().
  internal::ScopeRef scope = {};

  // Nothing of the above. A stub takes it by default, and knows it by its address.
  static const CallOptions kNone;
};

// Cap'n Proto's own limits for reading a peer's message, against a small message that is costly to traverse.
// A reader that exceeds one gets ResourceExhausted.
struct ReadLimits {
  // Bytes that may be traversed per byte of the message, beside the first 8 MiB. Each call of a getter counts
  // the size of its result again, so keep it in a variable in a loop.
  // Why 16: a handler may look at a large field some ten times. A hostile message whose pointers all lead to
  // the same objects makes a handler that follows each of them do as much work. That is 2 words of 8 bytes
  // per byte, and a word took 5 ns to follow on the machine of this writing. The peer has sent each of those
  // bytes; a message below 512 KiB costs no more than the first 8 MiB do, about 5 ms.
  uint32_t traversal_factor = 16;  // 0: 8 MiB for each message.
  // Depth of nested structs and lists; 1 at least.
  int nesting_max = 64;
};

enum class ChannelState { kConnecting, kReady, kTransientFailure, kClosed };

// "connecting", "ready", "transient failure", "closed".
absl::string_view ToString(ChannelState state);
std::ostream& operator<<(std::ostream& out, ChannelState state);

// Each function that takes these options returns InvalidArgument if one is out of its range.
struct ChannelOptions {
  absl::Duration default_timeout = absl::Seconds(10);  // 1 us at least. Infinite: calls without a deadline.
  // How long one attempt may take, handshake included; and how long Connect() tries again what a server
  // refuses for lack of room. 1 ms at least. Infinite: for as long as the system tries.
  absl::Duration connect_timeout = absl::Seconds(5);
  // The time between attempts to reconnect. It doubles from min to max, each time between half and all of it
  // at random. From 1 ms to a year. A max below min counts as min.
  absl::Duration backoff_min = absl::Milliseconds(20);
  absl::Duration backoff_max = absl::Seconds(5);
  // Connections to the one target, from 1 to 16. Each has its own queue pair, source port and slots, and is
  // served by the next poller of the runtime here, and of the server there. A call goes to the connection
  // that is ready and has the fewest calls; those that are alike take turns. The channel is ready while one
  // of them is. One that is lost is dialed again by itself. More than one helps where one is the limit: one
  // poller of the server, one path of a network that spreads flows over several (ECMP, link aggregation), or
  // what one queue pair of a NIC carries. Each costs at both sides what a connection costs: up to 152 KiB of
  // registered memory with 32 slots, pinned over RDMA. Callbacks of different calls may then run at once, on
  // the pollers of their connections, and calls do not leave in the order of Send(). With `services` only 1:
  // they belong to the session of one connection. See guide.md, "Several connections".
  int connections = 1;
  // What this client offers to the server (server push). The client dials a second, reverse connection for
  // them. With credentials only the server that it has authenticated can call them. The services outlive the
  // channel. Their handlers run on the channel's poller.
  std::vector<Service*> services = {};
  // With these the server and this client authenticate each other on every connection of the channel, and
  // over TCP what crosses is encrypted. Over RDMA it is not: each connection is proved by a TLS session over
  // TCP with the same address and port (TlsCredentials::require_encryption refuses that). The server needs
  // credentials, too. The files are read when the channel is created. Empty: neither. See guide.md, "TLS".
  std::optional<TlsCredentials> credentials = {};
  // See the calls that the channel makes, and those that `services` get (rpc/interceptor.h).
  std::vector<std::shared_ptr<Interceptor>> interceptors = {};
  // Runs at each change, where a callback of Then() would (rpc/call.h).
  std::function<void(ChannelState state, const absl::Status& why)> on_state_change = {};
  ConnectionOptions connection = {};
  ReadLimits read = {};
  // The channel uses the memory and the pollers of this server. So ServerContext::Attach() forwards what the
  // channel receives without a copy, and Call::Attach() what the server receives. nullptr: those of the
  // process. Since they share pollers, handlers of the server that run on them cannot Wait() for calls of the
  // channel. The server may end before the channel.
  internal::RuntimeSource* server = nullptr;  // A Server*.
  // Memory and pollers given directly; nullptr: those of `server`, or of the process.
  std::shared_ptr<Runtime> runtime = nullptr;
};

// Which clients get a server's snapshot: the addresses of its clients, who they are, the methods that they
// call, the names of its options, and how busy it is (observe/snapshot.capnp).
enum class Introspection {
  kNever,        // None: the server does not have the service.
  kThisMachine,  // Those that come over loopback, as every program on its machine can.
  kEveryone,     // Every client, unless ServerOptions::authorize refuses it.
};

// TCP ports, both ends included.
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;
};

// Listen() returns InvalidArgument if one is out of its range.
struct ServerOptions {
  // Threads that poll, for each network device that the server listens on. Connections are assigned to them
  // in turn. Handlers of different pollers run at once. 0: a poller for each connection, up to one for each
  // core (see RuntimeOptions::pollers). 1: the handlers of one device run one after the other, unless there
  // is an executor.
  int pollers = 0;
  PollerOptions poller = {};
  BufferPoolOptions pool = {};
  // Memory and pollers of one fabric, shared with others, instead of the server's own. The three options
  // above are ignored then.
  std::shared_ptr<Runtime> runtime = nullptr;
  // Where handlers run; empty: on the poller, which they must not block. The poller calls this for each
  // request, so it queues `handler`, which is move-only, and returns. A `handler` that is destroyed unrun
  // answers Unavailable, and its caller knows that it has not run (WasSent()). The pool that runs them
  // has to outlive the server; nothing checks that. A handler that is a coroutine is on a poller again after
  // it has awaited a call or a Sleep (rpc/task.h).
  std::function<void(absl::AnyInvocable<void()> handler)> executor = {};
  // With these the clients and this server authenticate each other at every address that the server listens
  // on, and over TCP what crosses is encrypted. A client that the server does not believe, or that has no
  // credentials, gets Unauthenticated, and no handler is called. Over RDMA what crosses is not encrypted, and
  // rdma:// listens on the same port over TCP, too, where clients prove who they are
  // (TlsCredentials::require_encryption refuses that); over iWARP on another one (`proof_ports`). The files
  // are read at the first Listen(). Empty: neither; the log then says once if other machines can reach an
  // address of the server.
  std::optional<TlsCredentials> credentials = {};
  // Where clients of rdma:// prove who they are, with `credentials`, if the RDMA device takes its own ports
  // from TCP (iWARP: siw, erdma, and others): the first TCP port of these that is free, so that a firewall
  // can let them pass. Each is 1024 or more. 0 and 0: any port that is free. All rdma:// addresses of this
  // server on the same IP address share one port. A client asks the server for it. Other devices need none
  // of this: there the port is that of the address.
  PortRange proof_ports = {};
  // Says whether a call may run. The server asks it before each handler, on the thread of the handler, after
  // Begin() of the interceptors: their OnEnd() gets a refusal, too. OK: the handler runs. Otherwise this is
  // the answer of the call, so return absl::PermissionDeniedError() with the reason, which the caller reads.
  // An exception is Internal; the log has its text, the caller does not get it. The function may look at
  // ServerContext::peer_identity(), method(), metadata() and peer_address(). Method says how to tell methods
  // apart. It is asked about the built-in services, too, such as health: IsBuiltIn(method) (rpc/method.h)
  // says which they are. Several threads may call it at once, and it must not block a poller. What it uses
  // outlives the server. Empty: every call may run. Without `credentials` it is asked, too, and no identity
  // is authenticated. It is not asked about a method that the server does not have: that is Unimplemented,
  // with a text that does not list what there is. It is asked when the request has arrived: any client with a
  // certificate can make the server receive ConnectionOptions::message_bytes_max, and use the executor. It
  // does not guard the services of a client (ServerContext::peer()): with credentials only the server that
  // the client has authenticated can call these, without them any program that accepts the connection can.
  std::function<absl::Status(const ServerContext& context)> authorize = {};
  // See the calls that the services get, and those made with ServerContext::peer() (rpc/interceptor.h).
  std::vector<std::shared_ptr<Interceptor>> interceptors = {};
  // The destructor of the server waits for DeferredCalls that are not finished, at most this long for all of
  // them together; 0: for none, infinite: for all. Then it names them in the log and stops waiting. They can
  // still be finished, without effect; the server's pollers and memory stay until the last of them is.
  absl::Duration handler_grace = absl::Seconds(5);
  ConnectionOptions connection = {};
  // Most connections, in all and from one host (an IPv4 address, or an IPv6 network of 64 bits); 1 at least.
  // A further one is rejected with a reason. So is one whose receives would take more than three quarters of
  // `pool`, or those of its host more than 15 sixteenths of that: the default pool has room for some 20,000
  // connections of 32 slots, or 70,000 of 8. A connection that was closed counts until its handlers have
  // ended.
  uint32_t connections_max = 65536;
  uint32_t connections_per_host_max = 16384;
  ReadLimits read = {};
  // Where the server shows what it is doing, over HTTP: "HOST:PORT", or "PORT" for this machine only; port 0
  // is any free one (observe/status_server.h): a page for people, and Prometheus's /metrics. From the first
  // Listen() on, which fails if that cannot be; Server::status_url() says where. Every program that reaches
  // the address can read it. Shutdown() gives up the port, so that the next process can have it. Empty:
  // nowhere.
  std::string status_address = {};
  // Metrics of the program's own, which follow the library's at /metrics: see
  // observe::StatusServer::Options::metrics. What the function uses outlives the server.
  std::function<std::string()> metrics = {};
  // The server answers clients that ask what it serves, with the schemas (rpc/hawser/reflection.capnp):
  // programs that know its address only, such as the tool `hawser`, can call it then. Clients that
  // `authorize` refuses do not get it.
  bool reflection = true;
  // The server answers clients that ask whether it, and each of its services, serves
  // (rpc/hawser/health.capnp): from the first Listen() until Shutdown(), unless Server::SetHealth() says
  // otherwise. `authorize` is asked about this, too. Without `authorize` and `interceptors` this and the
  // services below answer on the poller, also while the executor is stuck; with one of them they wait for it.
  bool health = true;
  // Which clients may ask the server what it is doing (rpc/hawser/introspection.capnp): what `status_address`
  // shows, for the commands `hawser top` and `hawser status`. `authorize` is asked about this, too. A proxy
  // on this machine that passes connections on makes their clients clients of this machine. Over RDMA none
  // counts as one.
  Introspection introspection = Introspection::kThisMachine;
  // Services of Hawser's own that only programs have which name them: PerfExtension() (services/perf/perf.h),
  // each at most once. A service of the application with one of their interfaces takes its place.
  std::vector<std::shared_ptr<const internal::ServerExtensionFactory>> extensions = {};
};

}  // namespace hawser

#endif  // HAWSER_RPC_OPTIONS_H_
