#ifndef HAWSER_RPC_SERVER_H_
#define HAWSER_RPC_SERVER_H_

// A server, from its start to its end:
//
//   hawser::ServerOptions options;
//   options.status_address = "0";  // A page for people, and /metrics, on a port that is free.
//   hawser::Server server(std::move(options));
//   absl::Status added = server.AddService(&pages);  // A PagesService; outlives the server.
//   if (!added.ok()) return added;
//   absl::StatusOr<std::string> uri = server.Listen("tcp://[::]:0");  // The URI with the real port.
//   if (!uri.ok()) return uri.status();
//   wait_for_signal(*uri);
//   return server.Shutdown(absl::Now() + absl::Seconds(10));

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/service.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/rpc/stats.h"

namespace hawser {

namespace internal {
class ServerCore;
}

// Serves calls, from the first Listen() until Shutdown().
// Thread:   any. Listen(), Shutdown(), Wait() and the destructor wait, so none of the server's pollers may
//           call them.
// Lifetime: the services outlive it. The destructor shuts down at once and cancels running calls. It waits
//           for handlers and OnCancel() callbacks that have not returned. It waits for deferred calls,
//           including those of coroutines (rpc/task.h), for ServerOptions::handler_grace at most. The log
//           names both kinds. When it returns, as when Shutdown() does, callbacks of the calls that were made
//           with ServerContext::peer() before have run. On one of its pollers (a handler, or a callback of a
//           channel that shares them), or in a handler on its executor, it would wait for itself: a CHECK.
// Fork:     in a child after fork() every call fails with FailedPrecondition, or returns nothing, and the
//           parent's server is not touched. A daemon forks before it makes a server.
class Server final : public internal::RuntimeSource {
 public:
  explicit Server(ServerOptions options = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // AlreadyExists: another service implements one of its methods; none of them is added then.
  // FailedPrecondition: after a Listen() that succeeded, or during one.
  absl::Status AddService(Service* service);

  // Listens on "tcp://host:port", on "rdma://host:port" (RDMA; host: a name or address of the device's
  // network interface, or all of them; with credentials also on that port over TCP, where clients prove who
  // they are), or on "auto://host:port": TCP, and RDMA on the same port where this machine has it. The host
  // [::] is every address of this machine, IPv4 and IPv6; 0.0.0.0 those of IPv4. (Over iWARP [::] may be IPv6
  // only.) Port 0 is any free one. Call it again for further addresses. Returns the URI with the real port.
  // InvalidArgument: not a URI that we know; or, with ServerOptions::credentials, files that cannot be used,
  // or rdma:// and require_encryption. AlreadyExists: port in use; also rdma:// with credentials over iWARP,
  // which takes the port from TCP. NotFound: name unknown. rdma:// also returns Unavailable,
  // FailedPrecondition and others, which say what this machine lacks. FailedPrecondition also: on one of its
  // pollers, or after Shutdown(). A Listen() that fails leaves nothing behind: no port, no status server, no
  // memory. AddService() and another try may follow.
  absl::StatusOr<std::string> Listen(absl::string_view uri);

  // What it listens on, in the order of the calls; an auto:// adds one or two. Nothing, from Shutdown() on.
  std::vector<std::string> addresses() const;

  // Why the latest auto:// that listens on TCP only is without RDMA. Otherwise empty.
  std::string why_not_rdma() const;

  // What the health service says of `service` from now on, also to those that watch it: "kv.capnp:KeyValue",
  // as `hawser list` prints it; any other name, also a misspelt one, which clients may ask for from then on;
  // or "", the server as a whole. By default what AddService() got serves. No effect after Shutdown(), which
  // lets nothing serve any more.
  void SetHealth(absl::string_view service, bool serves);

  // Drains: notifies those that watch its health, refuses new connections and new calls (Unavailable; clients
  // send those elsewhere or again), waits until `deadline` for running handlers, also for those whose callers
  // have gone, then cancels the rest and closes. A client without a call, or with small answers on their way
  // only, that does not leave within half a second is disconnected, and so is one that stands still for two
  // seconds with a large answer that it has not taken, with a large request that is refused, or with an error
  // that it does not take while there is no memory for the next; over RDMA, where a server does not see
  // READs, it has a second more for each 16 MiB of answers, 15 s at most. Such a client gets Unavailable; the
  // log and ServerStats::stalled_in_shutdown have it. One that this side sees go on, however slowly, keeps
  // its connection until `deadline`; what it READs again does not count, nor do more errors than it has
  // slots. Shutdown() returns later if a handler holds a poller, and handlers that were cancelled may still
  // run then. OK: each handler has answered its call. One that goes on after DeferredCall::Finish() may still
  // run, and so may one that began during a Shutdown() whose `deadline` had passed; ~Server waits for those.
  // DeadlineExceeded: some had not answered by `deadline`, or another thread's Shutdown() is not done by
  // then. FailedPrecondition: on one of its pollers, or in a handler on its executor without a deadline.
  // Listen() fails afterwards.
  absl::Status Shutdown(absl::Time deadline);

  // Waits until Shutdown() was called and is done. FailedPrecondition: it would wait for ever, because the
  // server listens nowhere, or for itself, on one of its pollers or in a handler on its executor.
  absl::Status Wait();

  // Memory that replies send without a copy (ServerContext::Attach()) to clients that come over its device. A
  // handler that fills a value for one caller calls ServerContext::AllocateBuffer() instead.
  // `uri` names the device: one that the server listens on, or will, so that a service can fill its memory
  // before it is called. auto:// means RDMA where this machine has it, else TCP. Empty: the device of an
  // earlier Listen(), or of ServerOptions::runtime. Replies over another device can send it, too, with a
  // copy. It is not zeroed, and may hold what a client has sent: see Buffer.
  // ResourceExhausted: the pool is at its limit. FailedPrecondition: no `uri`, and no Listen() yet; or
  // after Shutdown(), for a device that is new. Errors of `uri`: as of Listen().
  absl::StatusOr<Buffer> AllocateBuffer(size_t size_bytes, absl::string_view uri = "");

  // Memory that clients can reach by themselves, once a handler has granted it to them
  // (ServerContext::Grant()): new and zeroed, or the program's own, which stays until the SharedMemory ends.
  // It is registered, and pinned over RDMA, here for the networks that the server listens on already, else in
  // the first Grant() for one. From the first Listen() on handlers may run. So call it before that, or have
  // the handler answer Unavailable until the memory is there. It counts against no limit of Hawser's.
  // ResourceExhausted: the system has no memory, or memlock is too small. InvalidArgument: no bytes, or null.
  absl::StatusOr<SharedMemory> Share(size_t size_bytes);
  absl::StatusOr<SharedMemory> Share(absl::Span<uint8_t> memory);

  ServerStats stats() const;

  // "http://127.0.0.1:9090", if ServerOptions::status_address is given. Empty before the first Listen(). From
  // Shutdown() on only connections that are open are served there.
  std::string status_url() const;

  // What the server is doing, as its metrics and its status page have it (observe/snapshot.capnp), with what
  // is in flight. Takes milliseconds. If code of the application holds a poller, this waits for it for 20 ms,
  // or for a second if the poller has begun its report by then; after that the snapshot has the poller's
  // counters, but not what is on it. Not on a poller, of this server or of a channel, nor in a handler that
  // holds one: a CHECK.
  void FillIn(observe::wire::Snapshot::Builder snapshot) const;

 private:
  // internal::RuntimeSource
  absl::StatusOr<std::shared_ptr<Runtime>> RuntimeOn(const std::string& scheme,
                                                     const std::string& device) override;

  std::shared_ptr<internal::ServerCore> core_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_SERVER_H_
