#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_ENDPOINT_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_ENDPOINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/socket_address.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/completion_queue.h"
#include "hawser/transport/fabric/verbs/device_qp.h"
#include "hawser/transport/fabric/verbs/options.h"
#include "hawser/transport/fabric/verbs/queue_pair_state.h"
#include "hawser/transport/fabric/verbs/source.h"

namespace hawser::fabric {

// What the parts of one VerbsQueuePair share: its state, its peer, its ibv_qp, and the ways to its completion
// queue and to the control thread. The parts report to the queue pair by its virtual functions, which are for
// what ends a connection or happens once in it: nothing that is posted or completes well comes this way.
// Thread:   that of the completion queue.
// Lifetime: a base of the VerbsQueuePair, so it outlives the parts.
class VerbsEndpoint : public VerbsSource {
 public:
  using State = VerbsQueuePairState::State;
  using Event = VerbsQueuePairState::Event;

  // `sends`, `receives`: the entries of the queues of the ibv_qp.
  VerbsEndpoint(VerbsCompletionQueue& completion_queue, const VerbsFabricOptions& fabric, uint32_t number,
                uint32_t read_depth, uint64_t sends, uint32_t receives);

  VerbsCompletionQueue& completion_queue() const { return completion_queue_; }
  VerbsDevice& device() const { return device_; }
  const VerbsLibrary& verbs() const { return device_.verbs(); }
  VerbsDeviceQp& device_qp() const { return *device_qp_; }
  uint32_t token() const { return token_; }

  State state() const { return state_; }
  void Move(Event event);
  // Why it is in kError. OK: Disconnect() was called, or a completion says why.
  const absl::Status& error() const { return error_; }
  // Disconnect() was called: the handler is not called any more.
  bool disconnected() const { return disconnected_; }
  // The error of `call`, which needs another state than this.
  absl::Status NotUsable(absl::string_view call) const;

  // As text, for errors.
  std::string peer() const { return peer_address_.ToString(); }
  const SocketAddress& remote() const { return peer_address_; }
  const SocketAddress& local() const { return local_address_; }
  void SetPeer(const SocketAddress& address) { peer_address_ = address; }
  void SetLocal(const SocketAddress& address) { local_address_ = address; }
  // Agreed with the peer; before that, what this side can do.
  uint32_t agreed_read_depth() const { return read_depth_; }
  void SetReadDepth(uint32_t read_depth) { read_depth_ = read_depth; }

  // As VerbsSource::qp_num(), which is virtual.
  uint32_t current_qp_num() const { return qp_num_; }
  // Null: there is none yet, or the command that destroys it was given. To post to.
  ibv_qp* qp() const { return qp_; }
  // Its completions are there, since OnCreated().
  ibv_cq* cq() const { return cq_; }
  // The command that creates the ibv_qp has succeeded.
  void TakeQp();
  // The command that destroys it is about to be given.
  void DropQp();

  // The completion queue, so that the device stays: see VerbsCompletionQueue::Enter().
  absl::Status Enter(absl::string_view what);
  void Leave();
  bool entered() const { return entered_; }

  // Gives `command` to the control thread. `then`, if not null, is called with its result by TakeResults(),
  // unless this is destroyed before that.
  using Then = VerbsDeviceQp::Then;
  void HandOver(absl::AnyInvocable<absl::Status(VerbsDeviceQp&)> command, Then then);
  void TakeResults();
  // From now on, commands run on a thread of their own, or do not any more: see VerbsConnectThreads.
  void SetConnectsAlone(bool alone) { connects_alone_ = alone; }

  // OnTurn() will be called, once.
  void ScheduleOnce();
  void Deliver(const Completion& completion) { completion_queue_.Deliver(token_, completion); }
  void DeliverFlushed(uint64_t wr_id, Opcode opcode) {
    Deliver({.wr_id = wr_id, .status = CompletionStatus::kFlushed, .opcode = opcode});
  }

  // --- What the parts report

  // Moves to kError. The next Poll() notifies the handler, unless Disconnect() was called. `private_data`: of
  // a peer that has rejected.
  virtual void Fail(absl::Status why, absl::string_view private_data = {}) = 0;
  // Likewise, in the handshake: a peer that waits for an answer is rejected.
  virtual void FailHandshake(const absl::Status& why) = 0;
  // A work request has failed. Its completion says why.
  virtual void OnFailedRequest() = 0;
  // A revocation did not succeed, and cannot any more.
  virtual void OnFailedRevocation(uint64_t wr_id) = 0;
  // There is an ibv_qp, in INIT.
  virtual void OnCreated() = 0;
  virtual void OnEstablished(std::string private_data) = 0;

 protected:
  void SetError(absl::Status why) { error_ = std::move(why); }
  void SetDisconnected() { disconnected_ = true; }
  void OnScheduledTurn() { scheduled_ = false; }

 private:
  VerbsCompletionQueue& completion_queue_;
  VerbsDevice& device_;
  const uint32_t token_;
  const uint32_t number_;  // Differs from every ibv_qp's, which have 24 bits.
  uint32_t qp_num_;        // That of the ibv_qp, while there is one.
  uint32_t read_depth_;
  State state_ = State::kIdle;
  bool disconnected_ = false;
  bool scheduled_ = false;
  bool connects_alone_ = false;
  bool entered_ = false;
  ibv_qp* qp_ = nullptr;
  ibv_cq* cq_ = nullptr;
  SocketAddress peer_address_;
  SocketAddress local_address_;
  const std::shared_ptr<VerbsDeviceQp> device_qp_;
  absl::Status error_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_ENDPOINT_H_
