#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/cm_handshake.h"
#include "hawser/transport/fabric/verbs/completion_queue.h"
#include "hawser/transport/fabric/verbs/endpoint.h"
#include "hawser/transport/fabric/verbs/memory.h"
#include "hawser/transport/fabric/verbs/news.h"
#include "hawser/transport/fabric/verbs/options.h"
#include "hawser/transport/fabric/verbs/receive_queue.h"
#include "hawser/transport/fabric/verbs/revocations.h"
#include "hawser/transport/fabric/verbs/send_queue.h"

namespace hawser::fabric {

// An RC queue pair and its rdma_cm_id. It hands what it is asked to its parts, and knows how it ends:
//
//   VerbsEndpoint      its base: the state, and what the parts share
//   VerbsCmHandshake   connecting and accepting
//   VerbsSendQueue     posts and completes SENDs, READs, WRITEs; has the grants and the sinks
//   VerbsReceiveQueue  receives
//   VerbsRevocations   grants that are taken back
//   VerbsNews          what the handler is to be told
//   VerbsDeviceQp      the ibv_qp, its states and its end
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
class VerbsQueuePair final : public QueuePair, public VerbsEndpoint {
 public:
  VerbsQueuePair(VerbsCompletionQueue& completion_queue, const VerbsMemory& memory,
                 const VerbsFabricOptions& fabric, const QueuePairOptions& options, GrantKind grants,
                 uint32_t number, ConnectionHandler& handler);
  ~VerbsQueuePair() override;

  uint32_t qp_num() const override { return current_qp_num(); }
  uint32_t read_depth() const override { return agreed_read_depth(); }
  SocketAddress peer_address() const override { return remote(); }
  SocketAddress local_address() const override { return local(); }

  absl::Status Connect(const SocketAddress& address, absl::string_view private_data) override;
  absl::Status Accept(ConnectRequest& request, absl::string_view private_data) override;
  bool PeerSharesCore() const override { return false; }
  absl::Status PostSend(absl::Span<const SendWorkRequest> requests) override;
  bool PostInline(absl::Span<const uint8_t> message) override;
  void RingDoorbell() override;
  absl::Status PostReceive(absl::Span<const ReceiveWorkRequest> requests) override;
  absl::StatusOr<Granted> Grant(const Sge& range, Access access) override;
  bool takes_atomics() const override { return device().atomics() != Atomics::kNone; }
  void Revoke(uint32_t rkey, uint64_t wr_id) override { revocations_.Revoke(rkey, wr_id); }
  void OpenSink(uint8_t* address, uint64_t length_bytes) override;
  bool CloseSink(const uint8_t* address) override;
  absl::Status why_ended() const override { return error(); }
  void Disconnect() override;
  bool ForceFlush() override;

  // From the completion queue.
  void OnCmEvent(VerbsCmEvent& event) override;
  bool OnCompletion(const ibv_wc& wc, bool receive, uint32_t number, Completion& out) override;
  void OnTurn() override;
  void OnLost(const absl::Status& why) override;

  // From its parts.
  void Fail(absl::Status why, absl::string_view private_data = {}) override;
  void FailHandshake(const absl::Status& why) override;
  void OnFailedRequest() override;
  void OnFailedRevocation(uint64_t wr_id) override { revocations_.Flush(wr_id); }
  void OnCreated() override;
  void OnEstablished(std::string private_data) override;

 private:
  bool CanSend() const;
  void OnAsyncEvents(uint32_t events);
  void FillWindowStock();

  bool AwaitsAnswer() const { return !disconnected() && handshake_.AwaitsAnswer(); }
  void RejectPeer(const absl::Status& why);
  void CollectBeforeTheEnd();
  void EnterError();
  void OnErrorEntered(const absl::Status& released);
  void PostDrain();
  void Abandon();
  void OnDestroyed();
  void FlushOutstanding();

  const VerbsMemory& memory_;
  ConnectionHandler& handler_;
  VerbsSendQueue sends_;
  VerbsReceiveQueue receives_;
  VerbsRevocations revocations_;
  VerbsCmHandshake handshake_;
  VerbsNews news_;
  uint64_t collected_ = 0;     // What has completed before the end: see VerbsCompletionQueue::Delivered().
  bool collected_all_ = true;  // False: not all of that could be collected yet.
  bool flushes_ = false;       // FlushOutstanding() follows, once what has completed is delivered.
  bool ended_ = false;         // The handler was, or will be, notified of the end.
  bool abandoned_ = false;     // The ibv_qp is destroyed, or being destroyed.
  bool lost_ = false;          // There will be no more completions.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_QUEUE_PAIR_H_
