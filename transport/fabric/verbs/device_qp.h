#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_QP_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_QP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/mutex.h"
#include "hawser/transport/fabric/verbs/completion_queue.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/grants.h"
#include "hawser/transport/fabric/verbs/options.h"

namespace hawser::fabric {

// What one VerbsQueuePair has of the device: the ibv_qp, and what is left of its grants. Its members create,
// move and destroy them, and the rdma_cm_id with them. The queue pair calls them in commands of the control
// thread, but for SetAckTimeout() of a new id: they are commands to the device, and may block. The commands
// of one queue pair run one after the other.
//
//   used by         | until the command Create() has ended | then                | from the last command on
//   the ibv_qp      | the command                          | the queue pair      | that command; destroys it
//   the rdma_cm_id  | the queue pair made it, or took it from a request; a command may use it meanwhile; the
//                   | last command destroys it
//
// The queue pair posts to the ibv_qp, and nothing else; commands move it.
// Thread:   each member function says so.
// Lifetime: shared by its queue pair and the commands that were given. The queue pair may be destroyed first;
//           then the commands find ended(), skip what is left to do, and the last one destroys everything.
class VerbsDeviceQp final : public AsyncEventHandler {
 public:
  // `token`: of the queue pair, to notify. `sends`, `receives`: the entries of its queues.
  VerbsDeviceQp(VerbsCompletionQueue& completion_queue, const VerbsFabricOptions& fabric, uint32_t token,
                uint32_t sends, uint32_t receives);

  const VerbsLibrary& verbs() const { return device_.verbs(); }

  // --- Any thread

  // No command creates or moves anything any more.
  void End() { ended_.store(true, std::memory_order_release); }
  // OK, or Cancelled: End() was called.
  absl::Status Ended(absl::string_view what) const;

  // The events of the device since the last call: bits, by ibv_event_type.
  uint32_t TakeAsyncEvents() { return async_events_.exchange(0, std::memory_order_acq_rel); }

  // What the next EnterError() or Destroy() releases. Never waits.
  void Release(VerbsGrants::Leftover grants);

  // A grant by registration that is revoked, and the wr_id of its completion.
  struct Revocation {
    ibv_mr* mr;
    uint64_t wr_id;
    int error = 0;  // That of ibv_dereg_mr().
  };
  // What the next RevokeAll(), EnterError() or Destroy() deregisters. True: the first of its kind, so a
  // command must follow. Never waits.
  bool Revoke(const Revocation& revocation);
  // Deregisters those now, on this thread. False: a command is changing the ibv_qp at the moment, so this
  // does nothing.
  bool TryRevokeAll();
  // Those that were deregistered, or could not be; the latter are tried again at the end.
  std::vector<Revocation> TakeRevoked();

  // The results of commands, for the queue pair: what it calls with the result, and that. Report() notifies
  // it. A result that it does not take is destroyed on any thread.
  using Then = absl::AnyInvocable<void(const absl::Status& result)>;
  using Result = std::pair<Then, absl::Status>;
  void Report(Result result);
  std::vector<Result> TakeResults();

  // Valid once Create() has returned, until Destroy().
  ibv_qp* qp() const;
  ibv_cq* cq() const;
  // The longest inline send that the device grants.
  uint32_t inline_bytes() const { return inline_bytes_; }

  // rdma_accept() was called: the peer cannot be rejected any more.
  bool answered() const { return answered_.load(std::memory_order_acquire); }

  // Destroys the ibv_qp, so that the device does not touch its memory any more, and releases the grants.
  // Waits for a member that is changing the ibv_qp at the moment.
  void Destroy();

  // --- Commands. `what` begins the text of an error.

  // Moves the id to the completion queue's channel, with the context of the queue pair. `from`: the channel
  // that brought it, which lives until the id is here, or destroyed.
  absl::Status TakeOver(rdma_cm_id* id, std::shared_ptr<VerbsEventChannel> from, absl::string_view what);
  void SetAckTimeout(rdma_cm_id* id);

  // Creates the ibv_qp and moves it to INIT. `accepted`: `id` is a peer's request. After an error there may
  // be one.
  absl::Status Create(rdma_cm_id* id, bool accepted, absl::string_view what);
  // Moves it on to RTS, at the side that has connected, and adopts what the peer's NIC offers.
  absl::Status Establish(rdma_cm_id* id, absl::string_view what);
  // AlreadyExists: over iWARP, the port to connect from cannot be used; another one may.
  absl::Status Connect(rdma_cm_id* id, rdma_conn_param& parameters, absl::string_view what);
  // Moves it on to RTS and calls rdma_accept().
  absl::Status Accept(rdma_cm_id* id, rdma_conn_param& parameters, absl::string_view what);

  void RevokeAll();

  // Moves it to ERR if `move`, and releases what Release() was given. Internal: not all of that; Destroy()
  // tries again.
  absl::Status EnterError(bool move);
  void DestroyId(rdma_cm_id* id);

 private:
  void OnAsyncEvent(ibv_event_type event) override;

  absl::Status CreateQp(absl::string_view what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MoveQp(rdma_cm_id* id, absl::string_view what, ibv_qp_state state,
                      std::optional<uint8_t> reads = std::nullopt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeReadyToSend(rdma_cm_id* id, absl::string_view what,
                               std::optional<uint8_t> reads = std::nullopt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool QueryEce(ibv_ece& ece) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OfferEce(rdma_cm_id* id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AdoptEce(rdma_cm_id* id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RevokeNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  VerbsCompletionQueue& completion_queue_;
  VerbsDevice& device_;
  const uint32_t wanted_inline_bytes_;
  const uint8_t ack_timeout_;
  const uint32_t token_;
  const uint32_t sends_;
  const uint32_t receives_;
  uint32_t inline_bytes_ = 0;                     // Written before the result of Create() is reported.
  std::shared_ptr<VerbsEventChannel> came_from_;  // Of commands.
  std::atomic<bool> ended_ = false;
  std::atomic<bool> answered_ = false;
  std::atomic<uint32_t> async_events_ = 0;

  // Held while the ibv_qp is created, moved or destroyed. Not during calls of the connection manager:
  // rdma_connect() over iWARP takes as long as connecting does.
  mutable Mutex mutex_;
  ibv_qp* qp_ ABSL_GUARDED_BY(mutex_) = nullptr;
  ibv_cq* cq_ ABSL_GUARDED_BY(mutex_) =
      nullptr;  // Reserved on the completion queue, as long as there is an ibv_qp.
  VerbsGrants::Leftover unreleased_
      ABSL_GUARDED_BY(mutex_);  // What the device did not release; it is tried again.

  Mutex notes_mutex_;  // Held for a few instructions.
  std::vector<Result> results_ ABSL_GUARDED_BY(notes_mutex_);
  VerbsGrants::Leftover to_release_ ABSL_GUARDED_BY(notes_mutex_);
  std::vector<Revocation> to_revoke_ ABSL_GUARDED_BY(notes_mutex_);
  std::vector<Revocation> revoked_ ABSL_GUARDED_BY(notes_mutex_);
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_QP_H_
