#ifndef HAWSER_RPC_SERVER_SERVER_CORE_H_
#define HAWSER_RPC_SERVER_SERVER_CORE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/base/fork.h"
#include "hawser/base/peer_table.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/observe/status_server.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server/admission.h"
#include "hawser/rpc/server/listeners.h"
#include "hawser/rpc/server/session.h"
#include "hawser/rpc/service.h"
#include "hawser/rpc/services/health_board.h"
#include "hawser/rpc/services/introspection.h"
#include "hawser/rpc/services/perf_service.h"
#include "hawser/rpc/services/reflection.h"
#include "hawser/rpc/serving/server_report.h"
#include "hawser/rpc/stats.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection/proof_desk.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/uri.h"
#include "hawser/transport/wire/proof.h"

namespace hawser::internal {

// The implementation of Server: assigns connections to its pollers, owns the sessions, and ends them.
// Thread:   any but its pollers for the functions that Server calls; a poller for those of its bases.
// Lifetime: until its Server has called End() and the last call has ended.
class ServerCore final : public std::enable_shared_from_this<ServerCore>,
                         Listeners::Owner,
                         PerfService::Host,
                         Session::Owner {
 public:
  explicit ServerCore(ServerOptions options);
  ~ServerCore();
  // See ~Server().
  void End();
  ServerCore(const ServerCore&) = delete;
  ServerCore& operator=(const ServerCore&) = delete;

  // See Server.
  absl::Status AddService(Service* service);
  absl::StatusOr<std::string> Listen(absl::string_view uri);
  std::vector<std::string> addresses() const { return listeners_.addresses(); }
  std::string why_not_rdma() const { return listeners_.why_not_rdma(); }
  absl::Status Shutdown(absl::Time deadline);
  absl::Status Wait();
  absl::StatusOr<Buffer> AllocateBuffer(size_t size_bytes, absl::string_view uri);
  ServerStats stats() const;
  std::string status_url() const;
  void FillIn(observe::wire::Snapshot::Builder snapshot);
  void SetHealth(absl::string_view service, bool serves) { health_->Set(service, serves); }

  // The runtime that serves, or would serve, URIs of `scheme` over `device`.
  absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeOn(const std::string& scheme,
                                                                const std::string& device);

  // False in a child after fork(), which must not use it.
  bool usable_in_this_process() const { return !fork_mark_.in_child(); }

 private:
  enum class Phase { kServing, kDraining, kDown };
  struct Gathering;  // Of one report: in server_gathering.cc.

  // A poller that serves connections of this server. Lives as long as the server.
  struct ServingPoller {
    ServingPoller(transport::Poller& on, size_t methods) : poller(on), counters(methods) {
      poller.AddAsyncInterest(1);
    }
    transport::Poller& poller;
    ServingCounters counters;
    IntrusiveList<Session, InServingPoller> sessions;  // Used on the poller.
    std::shared_ptr<Gathering> gathering;              // The last one; with mutex_ locked.
    uint64_t gatherings = 0;                           // Likewise.
    std::shared_ptr<Gathering> running;                // Used on the poller.
    transport::Timer gather_timer{[this] { Gather(*this); }};
    // Peers assigned to it that it has not accepted yet, in all and by host. With mutex_ locked.
    uint32_t waiting = 0;
    absl::flat_hash_map<PeerHost, uint32_t> waiting_of_host;
  };
  // The pollers of one scheme and device.
  struct Pollers final : transport::Acceptor::Handler {
    explicit Pollers(ServerCore& of) : core(of) {}
    void OnPeer(transport::PeerRequest request) override;
    // For the port over TCP of an rdma:// with credentials.
    struct ProofsOnly final : transport::Acceptor::Handler {
      explicit ProofsOnly(Pollers& of) : pollers(of) {}
      void OnPeer(transport::PeerRequest request) override;
      Pollers& pollers;
    };
    ServerCore& core;
    ProofsOnly proofs_only{*this};
    bool is_kept = false;  // Gives memory to the application, or pollers to channels. With mutex_ locked.
    std::unique_ptr<transport::ProofDesk> proof_desk;  // With credentials, where there is TLS. Else null.
    std::shared_ptr<transport::Runtime> runtime;
    transport::Poller* front_desk = nullptr;  // Listens.
    // Added to on the front desk, with mutex_ locked.
    std::vector<std::unique_ptr<ServingPoller>> serving;
  };
  // A poller in a snapshot.
  struct NamedPoller {
    std::string name;  // "tcp 0", "rdma mlx5_0 1".
    std::string fabric;
    ServingPoller* serving = nullptr;
  };

  // ---- From the first Listen() to the end: server_core.cc.

  absl::Status CheckOptions() const;
  // What Listen() does, between BeginSetUp() and EndSetUp().
  absl::StatusOr<std::string> ListenOn(transport::Uri uri);
  // Around each call that may make pollers, or more, and then fail.
  void BeginSetUp();
  // Ends what such calls have made, and nothing uses, unless another one is under way.
  void EndSetUp();
  std::vector<std::unique_ptr<Pollers>> TakeUnusedPollers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Not on their pollers.
  static void End(std::vector<std::unique_ptr<Pollers>> pollers);
  // Reads ServerOptions::credentials, if there are any, at the first Listen().
  absl::Status Load();
  // At the first Listen(): the services that every server has.
  void AddBuiltInServices() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // At the first Listen(): the status server, if ServerOptions::status_address is given.
  absl::Status StartStatus();
  // Once: the server listens where other machines reach it, and has no credentials.
  void WarnOfNoCredentials();
  void EndProofs();

  bool NoConnections() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return admission_.open() == 0; }
  bool NoSessions() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return sessions_.empty(); }
  bool Down() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return phase_ == Phase::kDown; }
  // Blocks until one of these, or until `deadline`; returns it.
  bool AwaitLocked(bool (ServerCore::*condition)() const, absl::Time deadline = absl::InfiniteFuture())
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `function` for each session, on its poller, and waits until all have returned.
  void ForEachSession(absl::FunctionRef<void(Session&)> function);
  // Logs the calls that have not ended: see ServingConnection::DescribeCalls().
  void LogUnfinishedCalls(absl::string_view what, HandlerStage stage);
  // The last session has gone, after End().
  static void DestroySoon(std::shared_ptr<ServerCore> self);

  // ---- Pollers and memory: server_pollers.cc.

  absl::StatusOr<Pollers*> PollersOn(const std::string& scheme, const SocketAddress& address);
  absl::StatusOr<Pollers*> PollersFor(const std::string& scheme, const std::string& device);
  // Those that prove, over TCP, who connects over RDMA.
  absl::StatusOr<Pollers*> PollersForProofs();
  absl::StatusOr<Pollers*> PollersFor(
      const std::pair<std::string, std::string>& key,
      absl::FunctionRef<absl::StatusOr<std::shared_ptr<transport::Runtime>>()> make_runtime,
      bool keeps = false);
  absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeFor(const std::string& scheme,
                                                                 const std::string& device) const;
  // A runtime that serves `scheme`: that of `device`, or else the first. Unavailable: none does any more.
  absl::StatusOr<std::shared_ptr<transport::Runtime>> ServingRuntime(absl::string_view scheme,
                                                                     const std::string& device) const;
  // What AllocateBuffer() does, between BeginSetUp() and EndSetUp().
  absl::StatusOr<Buffer> AllocateBufferFor(size_t size_bytes, absl::string_view uri);
  // That of AllocateBuffer().
  absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeForBuffers(absl::string_view uri);
  std::vector<ServingPoller*> ServingPollers() const;
  std::vector<transport::Poller*> AllPollers() const;
  bool on_a_poller() const;
  // This thread is on a poller, or in a handler on the executor.
  bool in_a_handler() const { return on_a_poller() || serving_->handlers.InsideOnThisThread(); }

  // ---- Clients: server_clients.cc.

  void OnPeer(Pollers& pollers, transport::PeerRequest request);
  void AcceptProof(const Pollers& pollers, transport::PeerRequest request);
  // The state of the session that a probe asks about, as SessionProbe::Owner gets it.
  absl::Status AnswerProbe(const Pollers& pollers, const transport::PeerRequest& request);
  // The poller for the next client, which comes from `host` and waits there until StopWaiting().
  // ResourceExhausted: every poller has too many that it has not accepted yet, in all or of this host.
  absl::StatusOr<ServingPoller*> NextPoller(Pollers& pollers, const PeerHost& host);
  void StopWaiting(ServingPoller& serving, const PeerHost& host);
  // The entry of `poller`; adds it at its first connection. On the front desk.
  ServingPoller& ServingOn(Pollers& pollers, transport::Poller& poller);
  // The resources that the connection of this request needs.
  Admission::Place PlaceFor(const Pollers& pollers, const transport::PeerRequest& request) const;
  // The poller of the session that `request` belongs to. NotFound, PermissionDenied: there is none.
  absl::StatusOr<transport::Poller*> PollerOfSession(const Pollers& pollers,
                                                     const transport::PeerRequest& request);
  Session* FindSession(const transport::SessionToken& token);
  absl::Status Admit(const Admission::Place& place);
  void AcceptClient(const Pollers& pollers, ServingPoller& on, transport::PeerRequest request,
                    const Admission::Place& place);
  void AcceptReverse(transport::PeerRequest request, const Admission::Place& place);
  // Closes a newcomer, to make room for others.
  void CloseNewcomer(transport::Poller& poller, const transport::SessionToken& token);
  void ConnectionEnded(const Admission::Place& place);
  // The place of a session stays taken until OnSessionEnded().
  void ReleaseConnection(const Admission::Place& place);

  // ---- What a snapshot asks the pollers: server_gathering.cc.

  std::vector<NamedPoller> AllServing() const;
  // The reports of `pollers`; null: one that does not answer soon.
  PollerReports GatherReports(const std::vector<NamedPoller>& pollers);
  // Goes on with the report of `serving`, on its poller.
  static void Gather(ServingPoller& serving);

  // ---- Snapshots: server_snapshot.cc.

  observe::wire::Server::State WireState() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillInServer(observe::wire::Server::Builder server) const;
  void FillInMethods(observe::wire::Snapshot::Builder snapshot, const std::vector<NamedPoller>& pollers,
                     const PollerReports& reports) const;
  void FillInPools(observe::wire::Snapshot::Builder snapshot) const;
  void FillInTls(observe::wire::Tls::Builder out) const;
  void FillInSettings(observe::wire::Snapshot::Builder snapshot) const;

  // Listeners::Owner
  absl::StatusOr<Listeners::Desk> DeskFor(const std::string& scheme, const SocketAddress& address) override;
  absl::StatusOr<Listeners::Desk> DeskForProofs() override;
  bool has_credentials() const override { return options_.credentials.has_value(); }
  PortRange proof_ports() const override { return options_.proof_ports; }

  // PerfService::Host
  absl::StatusOr<Buffer> AllocateOn(absl::string_view scheme, size_t size_bytes) override;
  uint64_t RefusalsOn(absl::string_view scheme) const override;
  absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeAt(absl::string_view scheme,
                                                                const SocketAddress& address) override;
  std::vector<SocketAddress> listening() const override { return listeners_.socket_addresses(); }

  // Session::Owner
  void OnSessionFirstMessage(Session& session) override;
  void OnSessionLost(Session& session) override;
  void OnSessionEnded(Session& session) override;
  void OnReverseEnded(const Admission::Place& place) override;

  const ForkMark fork_mark_;
  const ServerOptions options_;
  transport::Environment& environment_;
  const absl::Time made_;
  std::atomic<uint64_t> refused_connections_{0};
  // Constant from a Listen() that succeeds on, or from the first connection on.
  const std::shared_ptr<Serving> serving_;
  Reflection reflection_;
  const std::shared_ptr<HealthBoard> health_;
  Introspector introspector_;
  PerfService perf_;
  Listeners listeners_;

  mutable absl::Mutex mutex_;
  // Null: without credentials, or before a Listen().
  std::shared_ptr<tls::Context> tls_ ABSL_GUARDED_BY(mutex_);
  // Owned by what listens where proofs are needed, over RDMA with credentials, and by each proof.
  std::weak_ptr<transport::ProofTable> proofs_ ABSL_GUARDED_BY(mutex_);
  bool warned_of_no_credentials_ ABSL_GUARDED_BY(mutex_) = false;
  absl::CondVar ended_;  // Signals the end of the last connection, of the last session, or of the server.
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kServing;
  int set_ups_ ABSL_GUARDED_BY(mutex_) = 0;        // Between BeginSetUp() and EndSetUp().
  bool listened_ ABSL_GUARDED_BY(mutex_) = false;  // A Listen() has succeeded.
  // The methods have the built-in services: during a Listen(), and after one that has succeeded.
  bool has_built_ins_ ABSL_GUARDED_BY(mutex_) = false;
  MethodTable own_methods_ ABSL_GUARDED_BY(mutex_);  // Those before.
  bool tells_serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool notified_serving_ ABSL_GUARDED_BY(mutex_) = false;  // The service manager.
  // By scheme and device. Loses only what a failed call has made and nothing uses (EndSetUp()), while the
  // server serves.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Pollers>> pollers_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<observe::StatusServer> status_ ABSL_GUARDED_BY(mutex_);
  // Each is used and destroyed on its poller.
  absl::btree_map<transport::SessionToken, std::unique_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  // A connection counts as open while it is being accepted. Its place stays taken until its handlers have
  // ended, so a client that connects again and again leaves at most as many handlers as it may have
  // connections.
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ServerCore> self_ ABSL_GUARDED_BY(mutex_);  // After End(), while there are sessions.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SERVER_CORE_H_
