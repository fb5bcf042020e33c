#ifndef HAWSER_RPC_SERVER_POLLER_GROUP_H_
#define HAWSER_RPC_SERVER_POLLER_GROUP_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/peer_table.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/server/server_credentials.h"
#include "hawser/rpc/server/serving_poller.h"
#include "hawser/rpc/stats.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection/proof_desk.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/runtime.h"

namespace hawser::internal {

// The pollers of a server on one runtime, so over one network and on one device: those that serve clients,
// and the front desk, which listens and hands each peer on.
// Thread:   any, unless a function says otherwise.
// Lifetime: owned by ServerPollers. Outlives what listens on it, and is destroyed on none of its pollers.
// Locks:    its mutex comes after those of ServerCore and ServerPollers, and before none of the server's.
class PollerGroup final : public transport::Acceptor::Handler {
 public:
  // Takes the peers that connect.
  class Clients {
   public:
    // A peer asks for a connection, or about a session. On the front desk.
    virtual void OnPeer(PollerGroup& group, transport::PeerRequest request) = 0;

   protected:
    ~Clients() = default;
  };

  // All but the runtime outlive it. The number of `methods` stays the same from the first peer on.
  static absl::StatusOr<std::unique_ptr<PollerGroup>> Create(std::shared_ptr<transport::Runtime> runtime,
                                                             const MethodTable& methods,
                                                             ServerCredentials& credentials,
                                                             Clients& clients);
  PollerGroup(const PollerGroup&) = delete;
  PollerGroup& operator=(const PollerGroup&) = delete;

  const std::shared_ptr<transport::Runtime>& runtime() const { return runtime_; }
  transport::Poller& front_desk() const { return *front_desk_; }
  // Takes proofs, and refuses all other peers: for the port over TCP of an rdma:// with credentials.
  transport::Acceptor::Handler& proofs_only() { return proofs_only_; }

  // The poller for the next client, which comes from `host` and waits there until StopWaiting().
  // ResourceExhausted: every poller has too many that it has not accepted yet, in all or of this host. On the
  // front desk.
  absl::StatusOr<ServingPoller*> NextPoller(const PeerHost& host);

  // Those that serve, in the order of their first clients. Each lives as long as the group.
  std::vector<ServingPoller*> Serving() const;
  bool serves() const;
  // This thread is on one of its pollers. Channels may use those that do not serve.
  bool on_one() const;
  // Adds its memory, its pollers and their calls.
  void AddTo(ServerStats& stats) const;

  // Ends the proofs that clients are giving, and refuses later ones. Not on its pollers.
  void CloseProofs();
  // Destroys a group that no client and no listener uses. Not on its pollers.
  static void Destroy(std::unique_ptr<PollerGroup> unused);

 private:
  struct ProofsOnly final : transport::Acceptor::Handler {
    explicit ProofsOnly(PollerGroup& of) : group(of) {}
    void OnPeer(transport::PeerRequest request) override;
    PollerGroup& group;
  };

  PollerGroup(std::shared_ptr<transport::Runtime> runtime, transport::Poller& front_desk,
              const MethodTable& methods, ServerCredentials& credentials, Clients& clients);

  // transport::Acceptor::Handler
  void OnPeer(transport::PeerRequest request) override;

  // The entry of `poller`; adds it at its first client.
  ServingPoller& ServingOn(transport::Poller& poller);

  const MethodTable& methods_;
  ServerCredentials& credentials_;
  Clients& clients_;
  mutable absl::Mutex mutex_;
  ProofsOnly proofs_only_{*this};
  std::unique_ptr<transport::ProofDesk> proof_desk_;  // With credentials, where there is TLS. Else null.
  const std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller* const front_desk_;
  std::vector<std::unique_ptr<ServingPoller>> serving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_POLLER_GROUP_H_
