#ifndef HAWSER_RPC_SERVER_SESSION_H_
#define HAWSER_RPC_SERVER_SESSION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server/admission.h"
#include "hawser/rpc/server/session_memory.h"
#include "hawser/rpc/server/shared_regions.h"
#include "hawser/rpc/serving/connection_reporter.h"
#include "hawser/rpc/serving/serving_connection.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lent_memory.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::internal {

struct InServingPoller;

// One client of a server: the connection that carries its calls and, if it offers services, a channel over
// the reverse connection to call those. The channel is closed with either connection. A client that reaches
// shared memory has a lane, too, which ends with the first connection. All connections must
// come from one host and one identity over one runtime, and so over one fabric and device: a token alone
// gives no access to the session of another client.
//
// Thread:   on the poller of its connections.
// Lifetime: owned by the server, until OnSessionEnded().
class Session final : public Admission::Newcomer, public ListLink<InServingPoller>, ServingConnection::Owner {
 public:
  class Owner {
   public:
    // The client has sent its first message.
    virtual void OnSessionFirstMessage(Session& session) = 0;
    // The client's connection is closed; its handlers may still run.
    virtual void OnSessionLost(Session& session) = 0;
    // The last call. The owner may destroy the session here.
    virtual void OnSessionEnded(Session& session) = 0;
    // A further connection, which had `place`, has ended: the reverse one, or a lane.
    virtual void OnFurtherEnded(const Admission::Place& place) = 0;
    // Null: the server shares no memory.
    virtual std::shared_ptr<SharedRegions> shared_regions() { return nullptr; }

   protected:
    ~Owner() = default;
  };

  // All of these outlive it. The client dials from `peer` and is `identity`; its first connection has
  // `place`.
  Session(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller, const SocketAddress& peer,
          std::shared_ptr<const PeerIdentity> identity, const Admission::Place& place,
          const ServerOptions& options, std::shared_ptr<const Serving> serving, ServingCounters& counters,
          Owner& owner);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Accepts the client's first connection. Not OK: there is none, and the owner is not called.
  absl::Status Accept(transport::PeerRequest request);
  // Accepts its reverse connection, which CheckReverse() allows and which has `place`. Not OK: `request` was
  // rejected with the reason, and the owner is not called.
  absl::Status AcceptReverse(transport::PeerRequest request, const Admission::Place& place);

  // Accepts its lane, likewise.
  absl::Status AcceptLane(transport::PeerRequest request, const Admission::Place& place);

  // Checks whether a connection over `runtime` from `peer`, which is `identity`, may be `what` of this
  // session: the reverse connection, a lane, or a probe. Thread: any. PermissionDenied: it does not come from
  // the same host and identity over the same runtime.
  absl::Status CheckFurther(absl::string_view what, const transport::Runtime& runtime,
                            const SocketAddress& peer, const PeerIdentity& identity) const;

  void Drain() { serving_.Drain(); }
  void Close(const absl::Status& why) { serving_.Close(why); }
  // Closes the connection, unless a first message of the client is on its way: the poller, busy with a flood
  // of connections, may have yet to read it. Waits a second for that message at most.
  void CloseIfNothingReceived();
  // On the poller.
  void AddTo(PollerReport& report) const {
    ConnectionReporter(serving_).AddTo(report, place_.receive_bytes, since_unix_ns_);
  }
  // See ConnectionReporter.
  std::vector<std::string> DescribeCalls(HandlerStage stage) const {
    return ConnectionReporter(serving_).DescribeCalls(stage);
  }

  // The last snapshot's gathering that has looked at it. Used on the poller, by the owner.
  uint64_t last_gathering = 0;

  const transport::SessionToken& token() const { return token_; }
  transport::Poller& poller() { return serving_.poller(); }
  const Admission::Place& place() const { return place_; }

 private:
  // ServingConnection::Owner
  void OnServingFirstMessage() override;
  void OnServingClosed(const absl::Status& why) override;
  void OnServingEnded() override;
  std::shared_ptr<Channel> peer() override;
  absl::StatusOr<transport::LaneTicket> GrantMemory(
      const std::shared_ptr<transport::LentMemory>& memory, uint64_t offset, uint64_t length, uint8_t access,
      const std::shared_ptr<transport::Arrivals>& arrivals) override;

  // Null: the server shares no memory. From any thread.
  std::shared_ptr<SessionMemory> Memory();

  const SocketAddress peer_host_;  // Port 0.
  const std::shared_ptr<const PeerIdentity> peer_identity_;
  const Admission::Place place_;
  const ServerOptions& options_;
  Owner& owner_;
  const transport::SessionToken token_;
  ServingConnection serving_;
  const int64_t since_unix_ns_;
  bool has_received_ = false;
  bool closed_ = false;
  int first_message_looks_ = 0;
  transport::Timer first_message_timer_;
  absl::Mutex mutex_;
  std::shared_ptr<Channel> peer_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<SessionMemory> memory_ ABSL_GUARDED_BY(mutex_);  // Null: it has used none.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SESSION_H_
