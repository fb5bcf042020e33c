#ifndef HAWSER_RPC_CLIENT_REMOTE_CALL_H_
#define HAWSER_RPC_CLIENT_REMOTE_CALL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hawser/base/fork.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/base/mutex.h"
#include "hawser/rpc/client/remote_call_handle.h"
#include "hawser/rpc/client/remote_ticket.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lane_operation.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/memory/user_regions.h"
#include "hawser/transport/poller/mailbox.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/poller/wait_event.h"
#include "hawser/transport/runtime.h"

namespace hawser::internal {

class RemoteCall;

// What carries out the operations of one channel: a RemoteLane.
class RemoteCarrier {
 public:
  RemoteCarrier(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                const std::string& peer_address)
      : runtime_(std::move(runtime)), poller_(poller), peer_address_(peer_address) {}
  RemoteCarrier(const RemoteCarrier&) = delete;
  RemoteCarrier& operator=(const RemoteCarrier&) = delete;

  // ---- From any thread.
  transport::Poller& poller() { return poller_; }
  const std::shared_ptr<transport::Runtime>& runtime() const { return runtime_; }
  const std::string& peer_address() const { return peer_address_; }

  // ---- On the poller.

  // Its OnEnd() is called once, from now on.
  virtual void Start(RemoteCall& call) = 0;
  // It ends with `why`, unless it is about to end.
  virtual void Abort(RemoteCall& call, const absl::Status& why) = 0;
  // For the text of an error: how long nothing has come from the peer.
  virtual std::string DescribeSilence() = 0;
  // Calls its OnDeadline() at its deadline_ns(), unless it calls EndDeadline() before.
  virtual void SetDeadline(RemoteCall& call) = 0;
  virtual void EndDeadline(RemoteCall& call) = 0;
  // Runs its callback in the next turn of the thread that drives.
  virtual void CallBackSoon(RemoteCallHandle call) = 0;
  // One that has ended, for another operation. Null: make one.
  virtual RemoteCall* TakeKept() = 0;

 protected:
  virtual ~RemoteCarrier() = default;

  const std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller& poller_;
  const std::string peer_address_;
};

// One range of remote memory.
struct RemotePart {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// One operation of a RemoteMemory, and its one result: the state machine behind RemoteOperation.
//
// The caller's memory is used by a NIC only if it is registered (of the pool, or by the program); otherwise
// the operation works on a buffer of the pool, and the bytes are copied, before a WRITE or after a READ.
// Thread:   any, unless a method says otherwise.
// Lifetime: counted references: of its RemoteOperation and, from Begin() until its end, its own. A carrier
//           keeps some that have ended, so that an operation in steady state allocates nothing.
class RemoteCall final : public transport::LaneOperation, public ListLink<struct ByDeadline> {
 public:
  using Callback = absl::AnyInvocable<void(const absl::Status&)>;

  // The operation on `parts`, whose bytes are `local`, one after the other. Not started. For an atomic:
  // 8 bytes, and `compare_add` and `swap` are set before Begin().
  static RemoteCallHandle New(std::shared_ptr<RemoteCarrier> carrier, std::shared_ptr<RemoteTicket> ticket,
                              Kind what, absl::Span<const RemotePart> parts, absl::Span<uint8_t> local,
                              int64_t timeout_ns);

  void Begin();
  // It has failed before it began.
  void EndUnbegun(const absl::Status& why);

  // Blocks until the result is there. CHECK: on a poller, if the operation uses the caller's memory in place,
  // also if the result is there: that depends on how soon the peer answers.
  absl::Status Wait();
  // Runs `callback` with the result, where callbacks of calls run.
  void Then(Callback callback);
  void Cancel();
  // The result is not wanted any more: cancels, and returns when the caller's memory is not used any more.
  // The callback does not run. CHECK: as of Wait().
  void Drop();

  // A child made by fork() after it was: nothing else may be called, and it is not destroyed.
  bool in_child() const { return fork_mark_.in_child(); }

  void AddRef() { refs_.fetch_add(1, std::memory_order_relaxed); }
  // True: that was the last reference. If there is only one, nothing can make others, so that one is released
  // without a locked instruction.
  bool Unref() {
    return refs_.load(std::memory_order_acquire) == 1 || refs_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  // After that: nothing uses it any more.
  void Destroy() { delete this; }

  // ---- On the poller, for its carrier.

  RemoteTicket& ticket() { return *ticket_; }
  // FailedPrecondition: the device that the caller's memory is registered with cannot use it any more.
  absl::Status CheckMemory() const { return use_ ? use_.region().Usable() : absl::OkStatus(); }
  int64_t deadline_ns() const { return deadline_ns_; }
  // For deadlines that are not in order.
  transport::Timer& deadline_timer() { return deadline_timer_; }
  void OnDeadline();
  // Once RunCallback() has returned, and there is no reference: it holds nothing of the operation.
  void Clear();
  // Lanes that it was started on.
  int tries = 0;
  // transport::LaneOperation
  void OnEnd(const absl::Status& status) override;
  // In a turn of the thread that drives.
  void RunCallback();

 private:
  RemoteCall();
  ~RemoteCall() override;
  void Prepare(std::shared_ptr<RemoteCarrier> carrier, std::shared_ptr<RemoteTicket> ticket, Kind what,
               absl::Span<const RemotePart> parts, absl::Span<uint8_t> local, int64_t timeout_ns);

  bool done() const;
  // Once it is there.
  absl::Status result() const;
  // Why `parts` cannot be, or OK: `pieces` has them.
  absl::Status SetPieces(absl::Span<const RemotePart> parts);
  // `use_`, if the program has registered the caller's memory. Not OK: it can neither be used in place nor be
  // copied, see UserRegions::Find().
  absl::Status FindRegistered();
  bool is_counted() const {
    return kind == Kind::kWrite && (ticket_->ticket.access & transport::kLaneCounted) != 0;
  }
  void CheckMayWait() const;
  void Start();
  RemoteCallHandle Self() {
    AddRef();
    return RemoteCallHandle(this);
  }

  const ForkMark fork_mark_;
  std::atomic<uint32_t> refs_{0};
  // What follows is set by Prepare().
  std::shared_ptr<RemoteCarrier> carrier_;
  std::shared_ptr<RemoteTicket> ticket_;  // Until RunCallback() has returned.
  absl::Span<uint8_t> local_;
  int64_t timeout_ns_ = 0;
  absl::Status impossible_;       // Not OK: it ends with this.
  bool is_direct_ = false;        // A NIC may touch the caller's memory until the end.
  transport::Lease bounce_;       // Empty: the caller's memory is registered.
  transport::UserRegionUse use_;  // Until its end. Empty: the program has not registered it.

  transport::WaitEvent event_;
  mutable Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool dropped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mutex_);
  Callback callback_ ABSL_GUARDED_BY(mutex_);

  // ---- On the poller.
  RemoteCallHandle self_;   // While it is under way.
  bool cancelled_ = false;  // Perhaps before it began.
  int64_t deadline_ns_ = transport::kNever;
  transport::Timer deadline_timer_;
  transport::MemberItem<RemoteCall, &RemoteCall::Start> start_item_{this};
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_REMOTE_CALL_H_
