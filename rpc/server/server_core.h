#ifndef HAWSER_RPC_SERVER_SERVER_CORE_H_
#define HAWSER_RPC_SERVER_SERVER_CORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/base/fork.h"
#include "hawser/base/socket_address.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/observe/status_server.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server/client_table.h"
#include "hawser/rpc/server/extensions.h"
#include "hawser/rpc/server/listeners.h"
#include "hawser/rpc/server/server_credentials.h"
#include "hawser/rpc/server/server_pollers.h"
#include "hawser/rpc/server/server_snapshot.h"
#include "hawser/rpc/server_extension.h"
#include "hawser/rpc/service.h"
#include "hawser/rpc/serving/serving.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/rpc/stats.h"
#include "hawser/transport/lane/lent_memory.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {

// The implementation of Server: its life, from the first Listen() to the end. What it is made of has classes
// of its own, which it owns and brings together.
// Thread:   any but its pollers.
// Lifetime: until its Server has called End() and the last call has ended.
// Locks:    where several are held, they are taken in this order: its own; Listeners::apart_mutex_;
//           ServerPollers'; then PollerGroup's or Listeners::mutex_. Those of ClientTable and
//           ServerCredentials are the last. An extension may hold one of its own while it calls its
//           host, but not one that its Open() or AddMethods() takes: these run with a lock of the server.
class ServerCore final : public std::enable_shared_from_this<ServerCore>,
                         Listeners::Owner,
                         ServerExtensionHost {
 public:
  // `built_in`: the services of Hawser's own that it has besides ServerOptions::extensions.
  ServerCore(ServerOptions options, const ServerExtensionList& built_in);
  // See ~Server().
  void End();
  ServerCore(const ServerCore&) = delete;
  ServerCore& operator=(const ServerCore&) = delete;

  // See Server.
  absl::Status AddService(Service* service);
  absl::StatusOr<std::string> Listen(absl::string_view uri);
  std::vector<std::string> addresses() const;
  std::string why_not_rdma() const { return listeners_.why_not_rdma(); }
  absl::Status Shutdown(absl::Time deadline);
  absl::Status Wait();
  absl::StatusOr<Buffer> AllocateBuffer(size_t size_bytes, absl::string_view uri);
  absl::StatusOr<SharedMemory> Share(size_t size_bytes) override;
  absl::StatusOr<SharedMemory> Share(absl::Span<uint8_t> memory);
  ServerStats stats() const { return snapshot_.Stats(); }
  std::string status_url() const;
  void FillIn(observe::wire::Snapshot::Builder snapshot) override;
  void SetHealth(absl::string_view service, bool serves) { extensions_.SetHealth(service, serves); }

  // The runtime that serves, or would serve, URIs of `scheme` over `device`.
  absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeOn(const std::string& scheme,
                                                                const std::string& device);

  // False in a child after fork(), which must not use it.
  bool usable_in_this_process() const { return !fork_mark_.in_child(); }

 private:
  enum class Phase { kServing, kDraining, kDown };

  // Registers it with the networks that the server has already.
  absl::StatusOr<SharedMemory> Registered(std::shared_ptr<transport::LentMemory> memory);
  // What Listen() does, between BeginSetUp() and EndSetUp().
  absl::StatusOr<std::string> ListenOn(transport::Uri uri);
  // Around each call that may make pollers, or more, and then fail.
  void BeginSetUp();
  // Ends what such calls have made, and nothing uses, unless another one is under way.
  void EndSetUp();
  // At the first Listen(): the status server, if ServerOptions::status_address is given.
  absl::Status StartStatus();
  // Tells the service manager at the first Listen() that succeeds.
  void NotifyServingOnce(absl::string_view address);
  // Once: the server listens where other machines reach it, and has no credentials.
  void WarnOfNoCredentials();

  // This thread is on a poller, or in a handler on the executor.
  bool in_a_handler() const { return pollers_.on_one() || serving_->handlers.InsideOnThisThread(); }
  // Blocks until the server is down, or until `deadline`; returns whether it is.
  bool AwaitDown(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Blocks until all clients have gone and no handler runs, or until `deadline`. DeadlineExceeded: some do.
  absl::Status AwaitHandlers(absl::Time deadline);
  observe::wire::Server::State WireState() const;
  // The last session has gone, after End(). On its poller.
  static void DestroySoon(std::shared_ptr<ServerCore> self);

  // Listeners::Owner
  absl::StatusOr<Listeners::Desk> DeskFor(const std::string& scheme, const SocketAddress& address) override;
  absl::StatusOr<Listeners::Desk> DeskForProofs() override;
  bool has_credentials() const override { return credentials_.given(); }
  PortRange proof_ports() const override { return options_.proof_ports; }

  // ServerExtensionHost
  absl::StatusOr<Buffer> AllocateOn(absl::string_view scheme, size_t size_bytes) override {
    return pollers_.AllocateOn(scheme, size_bytes);
  }
  uint64_t RefusalsOn(absl::string_view scheme) const override { return pollers_.RefusalsOn(scheme); }
  absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeAt(absl::string_view scheme,
                                                                const SocketAddress& address) override {
    return pollers_.RuntimeAt(scheme, address);
  }
  std::vector<SocketAddress> listening() const override { return listeners_.socket_addresses(); }
  const MethodTable& methods() const override { return serving_->methods; }

  const ForkMark fork_mark_;
  const ServerOptions options_;
  transport::Environment& environment_;
  // Constant from a Listen() that succeeds on, or from the first connection on.
  const std::shared_ptr<Serving> serving_;
  ServerSnapshot snapshot_;
  Extensions extensions_;
  Listeners listeners_;
  ServerCredentials credentials_;
  ClientTable clients_;

  mutable absl::Mutex mutex_;
  absl::CondVar down_;  // Signals the end of Shutdown().
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kServing;
  int set_ups_ ABSL_GUARDED_BY(mutex_) = 0;        // Between BeginSetUp() and EndSetUp().
  bool listened_ ABSL_GUARDED_BY(mutex_) = false;  // A Listen() has succeeded.
  // The methods have those of the extensions: during a Listen(), and after one that has succeeded.
  bool has_extensions_ ABSL_GUARDED_BY(mutex_) = false;
  MethodTable own_methods_ ABSL_GUARDED_BY(mutex_);  // Those before.
  bool warned_of_no_credentials_ ABSL_GUARDED_BY(mutex_) = false;
  bool tells_serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool notified_serving_ ABSL_GUARDED_BY(mutex_) = false;  // The service manager.
  std::unique_ptr<observe::StatusServer> status_ ABSL_GUARDED_BY(mutex_);
  // The last, so that the pollers end before what they use.
  ServerPollers pollers_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SERVER_CORE_H_
