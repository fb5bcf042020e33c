#ifndef HAWSER_RPC_SERVER_CLIENT_TABLE_H_
#define HAWSER_RPC_SERVER_CLIENT_TABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server/admission.h"
#include "hawser/rpc/server/poller_group.h"
#include "hawser/rpc/server/session.h"
#include "hawser/rpc/server/shared_regions.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::internal {

// The clients of a server: admits their connections, gives each to a poller, and owns their sessions.
// Thread:   the front desks and the pollers for its bases; any but the pollers for what blocks.
// Lifetime: owned by ServerCore, and outlives its pollers.
// Locks:    its mutex comes after that of ServerCore, and before none of the server's.
class ClientTable final : public PollerGroup::Clients, Session::Owner {
 public:
  // `options` and `environment` outlive it.
  ClientTable(const ServerOptions& options, transport::Environment& environment,
              std::shared_ptr<const Serving> serving);
  ClientTable(const ClientTable&) = delete;
  ClientTable& operator=(const ClientTable&) = delete;

  // Admits no client any more. Those that were admitted stay.
  void Close();
  // Blocks until no connection is open, or until `deadline`; returns whether none is.
  bool AwaitNoConnections(absl::Time deadline);
  // Blocks until there is no session, or until `deadline`: the handlers of all have answered, too.
  bool AwaitNoSessions(absl::Time deadline);
  // Keeps `then`, unless there is no session, and calls it once the last one has ended, on its poller. After
  // Close(), once.
  void OnceEmpty(absl::AnyInvocable<void()> then);

  // Calls `function` for each session on one of these, on its poller, and waits until all have returned.
  void ForEach(const std::vector<ServingPoller*>& pollers, absl::FunctionRef<void(Session&)> function);
  // Logs the calls of one stage that have not ended; `what` the end of the server does about them.
  void LogUnfinishedCalls(const std::vector<ServingPoller*>& pollers, absl::string_view what,
                          HandlerStage stage);

  // What the server shares.
  SharedRegions& regions() const { return *regions_; }
  std::weak_ptr<SharedRegions> weak_regions() const { return regions_; }

  // Connections.
  uint64_t open() const;
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  // PollerGroup::Clients
  void OnPeer(PollerGroup& group, transport::PeerRequest request) override;

  // Session::Owner
  void OnSessionFirstMessage(Session& session) override;
  void OnSessionLost(Session& session) override;
  void OnSessionEnded(Session& session) override;
  void OnFurtherEnded(const Admission::Place& place) override;
  std::shared_ptr<SharedRegions> shared_regions() override { return regions_; }

  bool NoConnections() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return admission_.open() == 0; }
  Session* FindSession(const transport::SessionToken& token) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FindSession() on the session's poller, which alone destroys it: valid until the caller returns to it.
  Session* SessionHere(const transport::SessionToken& token);
  // The state of the session that a probe asks about, as SessionProbe::Owner gets it.
  absl::Status AnswerProbe(const PollerGroup& group, const transport::PeerRequest& request);
  // The poller of the session that `request` belongs to. NotFound, PermissionDenied: there is none.
  absl::StatusOr<transport::Poller*> PollerOfSession(const PollerGroup& group,
                                                     const transport::PeerRequest& request);
  void AssignClient(PollerGroup& group, transport::PeerRequest request);
  // The reverse connection of a session, or its lane.
  void AssignFurther(const PollerGroup& group, transport::PeerRequest request);
  // The resources that the connection of this request needs.
  Admission::Place PlaceFor(const PollerGroup& group, const transport::PeerRequest& request) const;
  // OK: `place` is taken.
  absl::Status Admit(const Admission::Place& place);
  void Refuse(transport::PeerRequest request, const absl::Status& why);
  void AcceptClient(const PollerGroup& group, ServingPoller& on, transport::PeerRequest request,
                    const Admission::Place& place);
  void AcceptFurther(transport::PeerRequest request, const Admission::Place& place);
  // Closes a newcomer, to make room for others.
  void CloseNewcomer(transport::Poller& poller, const transport::SessionToken& token);
  void ConnectionEnded(const Admission::Place& place);
  // The place of a session stays taken until OnSessionEnded().
  void ReleaseConnection(const Admission::Place& place);

  const ServerOptions& options_;
  transport::Environment& environment_;
  const std::shared_ptr<const Serving> serving_;
  const std::shared_ptr<SharedRegions> regions_;
  std::atomic<uint64_t> refused_{0};
  mutable absl::Mutex mutex_;
  absl::CondVar ended_;  // Signals the end of the last connection, and of the last session.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Each is used and destroyed on its poller.
  absl::btree_map<transport::SessionToken, std::unique_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  // A connection counts as open while it is being accepted. Its place stays taken until its handlers have
  // ended, so a client that connects again and again leaves at most as many handlers as it may have
  // connections.
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  absl::AnyInvocable<void()> once_empty_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_CLIENT_TABLE_H_
