#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/completion_queue.h"
#include "hawser/transport/fabric/verbs/device_qp.h"
#include "hawser/transport/fabric/verbs/grants.h"
#include "hawser/transport/fabric/verbs/memory.h"
#include "hawser/transport/fabric/verbs/options.h"
#include "hawser/transport/fabric/verbs/queue_pair_state.h"
#include "hawser/transport/fabric/verbs/send_ring.h"
#include "hawser/transport/fabric/verbs/sinks.h"

namespace hawser::fabric {

// An RC queue pair and its rdma_cm_id. Posting and completing are in queue_pair.cc, connecting and
// ending in connect.cc, the states of the ibv_qp in qp_states.cc.
//
// The control thread of the device creates, moves and destroys the ibv_qp (VerbsDeviceQp), so none of these
// holds the poller, but for what control_thread.h names. Each is a command, given by HandOver(); its result
// comes back in a later Poll().
//
// The ibv_qp is created when the route is resolved, or by Accept(); receives that were posted earlier wait
// for it. After Disconnect() it is moved to error and flushes. A last signaled work request, posted then,
// shows when the unsignaled sends have ended as well. The ibv_qp of a device that has failed is destroyed
// instead, and its work requests completed.
//
// The destructor leaves the destruction of the ibv_qp to the control thread, if nothing is outstanding.
// Otherwise it destroys the ibv_qp itself; if the control thread is changing this very ibv_qp at that moment,
// it waits for that change.
class VerbsQueuePair final : public QueuePair, public VerbsSource {
 public:
  VerbsQueuePair(VerbsCompletionQueue& completion_queue, const VerbsMemory& memory,
                 const VerbsFabricOptions& fabric, const QueuePairOptions& options, GrantKind grants,
                 uint32_t number, ConnectionHandler& handler);
  ~VerbsQueuePair() override;

  uint32_t qp_num() const override { return qp_num_; }
  uint32_t read_depth() const override { return read_depth_; }
  SocketAddress peer_address() const override { return peer_address_; }
  SocketAddress local_address() const override { return local_address_; }

  absl::Status Connect(const SocketAddress& address, absl::string_view private_data) override;
  absl::Status Accept(ConnectRequest& request, absl::string_view private_data) override;
  bool PeerSharesCore() const override { return false; }
  absl::Status PostSend(absl::Span<const SendWorkRequest> requests) override;
  absl::Status PostReceive(absl::Span<const ReceiveWorkRequest> requests) override;
  absl::StatusOr<Granted> Grant(const Sge& range, Access access) override;
  void Revoke(uint32_t rkey, uint64_t wr_id) override;
  void OpenSink(uint8_t* address, uint64_t length_bytes) override;
  bool CloseSink(const uint8_t* address) override;
  void Disconnect() override;
  bool ForceFlush() override;

  // From the completion queue.
  void OnCmEvent(VerbsCmEvent& event) override;
  bool OnCompletion(const ibv_wc& wc, bool receive, uint32_t number, Completion& out) override;
  void OnTurn() override;
  void OnLost(const absl::Status& why) override;

 private:
  using State = VerbsQueuePairState::State;
  using Event = VerbsQueuePairState::Event;

  // For the handler, from the next Poll() on.
  struct News {
    bool established = false;
    bool ended = false;
    bool ended_before_established = false;
    absl::Status why;
    std::string private_data;
  };

  // A work request that PostSend() has taken, and that waits because it may name a grant whose BIND_MW has no
  // place yet.
  struct Waiting {
    explicit Waiting(const SendWorkRequest& request);
    SendWorkRequest ToRequest() const;

    SendWorkRequest request;  // Without its sges.
    size_t sge_count;
    Sge sges[kSgeMax];
  };
  // What a completion needs to know of a work request.
  struct Untold {
    uint64_t wr_id;
    Opcode opcode;
  };

  // Gives `command` to the control thread. `then`, if not null, gets its result in a later Poll(), unless
  // this is destroyed before that.
  using Then = VerbsDeviceQp::Then;
  void HandOver(absl::AnyInvocable<absl::Status(VerbsDeviceQp&)> command, Then then);
  void TakeResults();

  // Each send completes, and is put in order by us.
  bool AllSignaled() const { return device_.iwarp(); }
  const VerbsLibrary& verbs() const { return device_.verbs(); }
  std::string ConnectingTo() const;

  absl::Status CheckSend(const SendWorkRequest& request) const;
  absl::Status NotUsable(absl::string_view call) const;
  // For PostSend().
  uint32_t room() const { return sends_.room() - static_cast<uint32_t>(waiting_.size() + untold_.size()); }
  absl::Status BeginSinks(absl::Span<const SendWorkRequest> requests);
  bool EndSink(uint32_t number);
  absl::Status PostChain(absl::Span<const SendWorkRequest> requests);
  void PostQueued();
  // Fills in `to`, but for its wr_id and next, and returns its entry.
  VerbsSendRing::Entry Translate(const SendWorkRequest& from, ibv_send_wr& to);
  absl::Status PostReceives(absl::Span<const ReceiveWorkRequest> requests);
  void OnUnorderedSendCompletion(const ibv_wc& wc, uint32_t number);
  void DeliverInOrder();
  bool OnSendCompletion(const ibv_wc& wc, uint32_t number, Completion& out);
  void ScheduleOnce();

  void Move(Event event);
  absl::Status Enter(absl::string_view what);
  void Leave();
  void OnAddressResolved();
  void OnRouteResolved();
  void OnCreated(const absl::Status& result);
  void AskToConnect();
  void OnAskedToConnect(const absl::Status& result);
  void LeaveConnectThread();
  rdma_conn_param ConnectionParameters() const;
  // False: it failed.
  bool SetTrafficClass();
  void OnConnectResponse(const VerbsCmEvent& event);
  void OnReadyToSend(const absl::Status& result);
  void Answer();
  void OnAnswered(const absl::Status& result);
  std::string Accepting() const;
  void FailHandshake(const absl::Status& why);
  void RejectPeer(const absl::Status& why);
  void Establish(const VerbsCmEvent& event);

  // Moves to kError. The next Poll() notifies the handler, unless Disconnect() was called.
  void Fail(absl::Status why, absl::string_view private_data = {});
  void EnterError();
  void OnErrorEntered(const absl::Status& result);
  void DropId();
  void PostDrain();
  void Abandon();
  void OnDestroyed(const absl::Status& result);
  void FlushOutstanding();
  void FlushPending();
  void FillWindowStock();
  void OnRevoked(const absl::Status& result);
  void FlushRevocation(uint64_t wr_id);
  // The peer has asked to connect, and this side has neither answered nor given up.
  bool AwaitsAnswer() const {
    return accepted_ && !was_established_ && !disconnected_ && !device_qp_->answered();
  }
  void OnFailedRequest();
  void FailAnywhere(absl::Status why);
  void CollectBeforeTheEnd();
  void DeliverFlushed(uint64_t wr_id, Opcode opcode);
  void FlushUntold();
  void FlushUntoldAndWaiting();
  News& news();

  VerbsCompletionQueue& completion_queue_;
  VerbsDevice& device_;
  const VerbsMemory& memory_;
  const VerbsFabricOptions& fabric_;
  ConnectionHandler& handler_;
  const QueuePairOptions options_;
  const uint32_t token_;
  const uint32_t number_;  // Differs from every ibv_qp's, which have 24 bits.
  uint32_t qp_num_;        // Of the ibv_qp, while there is one.
  uint32_t read_depth_;
  uint32_t inline_bytes_ = 0;  // Granted by the device.
  State state_ = State::kIdle;
  bool accepted_ = false;  // By Accept(), rather than by the peer.
  bool was_established_ = false;
  bool ended_ = false;          // The handler was, or will be, notified of the end.
  bool disconnected_ = false;   // By Disconnect(): the handler is not called any more.
  bool releasing_ = false;      // The control thread is moving the ibv_qp to error, and releases the grants.
  uint32_t revoking_ = 0;       // Grants that the control thread deregisters.
  bool releases_some_ = false;  // Grants that may still give the peer access are among these.
  bool unreleased_ =
      false;                // The device did not release all; it is tried again when the ibv_qp is destroyed.
  bool abandoned_ = false;  // The ibv_qp is destroyed, or being destroyed.
  bool flushes_ = false;    // FlushOutstanding() follows, once what has completed is delivered.
  uint64_t collected_ = 0;  // What has completed before the end: see VerbsCompletionQueue::Delivered().
  bool collected_all_ = true;  // False: not all of that could be collected yet.
  bool lost_ = false;          // There will be no more completions.
  bool keeps_sink_ =
      false;  // The device keeps what a READ has filled writable, so that READ and those behind it wait.
  bool scheduled_ = false;
  bool connect_returned_ = false;  // rdma_connect()
  bool connects_alone_ = false;    // Its commands run on a thread of their own: see VerbsConnectThreads.
  bool entered_ = false;           // The completion queue, so that the device stays.
  rdma_cm_id* id_ = nullptr;       // Until the command that destroys it is given.
  ibv_qp* qp_ = nullptr;  // To post to: from OnCreated() on, until the command that destroys it is given.
  ibv_cq* cq_ = nullptr;  // Its completions are there, since OnCreated().
  SocketAddress peer_address_;
  SocketAddress local_address_;

  VerbsSendRing sends_;
  VerbsGrants grants_;
  uint32_t unsignaled_grants_ = 0;  // Work requests of grants, since the last signaled work request.
  std::vector<Waiting> waiting_;    // In order, behind everything in `sends_`.
  // Unsignaled work requests of the caller that have left `sends_`, because one of a grant behind them has
  // completed, of which the caller is not told. The next completion of the caller's own proves them, too.
  std::vector<Untold> untold_;
  VerbsSinks sinks_;
  std::vector<uint64_t> receives_;  // wr_ids by number, a power of two.
  uint32_t receives_posted_ = 0;    // Numbers in [receives_retired_, receives_posted_) are outstanding.
  uint32_t receives_retired_ = 0;
  std::vector<ReceiveWorkRequest> pending_receives_;  // Until there is an ibv_qp.
  std::vector<uint64_t> revocations_;                 // Flushed, but not released yet: see FlushRevocation().
  std::string private_data_;                          // For rdma_connect() or rdma_accept().
  VerbsCmEvent response_;                             // Of the peer, while the ibv_qp is being moved.

  // A chain while it is built; kept so that posting allocates nothing.
  std::vector<ibv_send_wr> chain_;
  std::vector<ibv_sge> chain_sges_;
  std::vector<VerbsSinks::Begun> chain_sinks_;  // For each request of PostSend(), or empty.
  std::vector<ibv_recv_wr> receive_chain_;

  const std::shared_ptr<VerbsDeviceQp> device_qp_;
  std::unique_ptr<News> news_;
  absl::Status error_;  // Why it is in kError.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_H_
