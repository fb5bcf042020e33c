#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_COMPLETION_QUEUE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_COMPLETION_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/base/mutex.h"
#include "hawser/base/unique_fd.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/event_channel.h"

namespace hawser::fabric {

// A queue pair or a listener, as its completion queue sees it. It is known by a token, in the wr_id of its
// work requests and in the context of its rdma_cm_id, so that late news of one that is gone is dropped. All
// calls come from inside Poll().
class VerbsSource {
 public:
  virtual ~VerbsSource() = default;

  // May destroy this, or any other source.
  virtual void OnCmEvent(VerbsCmEvent& event) = 0;

  // Of a work request with `number`. True: `out` is a completion for the caller.
  virtual bool OnCompletion(const ibv_wc&, bool /*receive*/, uint32_t /*number*/, Completion&) {
    return false;
  }

  // To be given with its completions: that of now, since it changes when the ibv_qp goes.
  virtual uint32_t qp_num() const { return 0; }

  // Once for each Schedule() or Notify(). May destroy this, or any other source.
  virtual void OnTurn() {}

  // The device, or its completion queue, has failed for good: no completion will come any more.
  virtual void OnLost(const absl::Status& /*why*/) {}

  // A second after TryLater().
  virtual void OnTryAgain() {}
};

// An ibv_comp_channel with as many ibv_cq as its queue pairs need (each work request has a place in one, so
// that none can overflow, whatever max_cqe is), an rdma_event_channel, and an epoll set of all that one can
// wait for.
//
// Poll() belongs to one thread at a time; Wait() may run beside it. Both poll an ibv_cq, so that is under a
// mutex: what Wait() finds after arming it keeps for the next Poll(), in order.
class VerbsCompletionQueue final : public CompletionQueue, private AsyncEventHandler {
 public:
  static absl::StatusOr<std::unique_ptr<VerbsCompletionQueue>> Create(std::shared_ptr<VerbsDevice> device,
                                                                      uint32_t depth);
  ~VerbsCompletionQueue() override;

  size_t Poll(absl::Span<Completion> completions) override;
  void WaitUntil(int64_t when_ns) override;
  void Wake() override;

  // For its sources.
  VerbsDevice& device() const { return *device_; }
  const std::shared_ptr<VerbsEventChannel>& channel() const { return channel_; }

  // A token is less than 2^31 and not 0.
  uint32_t Register(VerbsSource& source);
  void Unregister(uint32_t token);  // Drops what it has not delivered yet.
  void Schedule(uint32_t token);    // OnTurn() will be called.
  void Notify(uint32_t token);      // Likewise; from any thread.

  // Around all that a source has of the device, rdma_cm_id included: what is gone is let go when the last one
  // has left. Enter() opens it anew. Unavailable: it is gone.
  absl::Status Enter();
  void Leave();

  // A connection of the device has this address. Where the driver cannot take a device from its users, which
  // is so of the software ones, only the ids that are bound to it are told of its removal, and it waits for users
  // that were not told. So there is always one such id.
  void BindSentinel(const SocketAddress& local);
  // OnTryAgain() of all sources will be called.
  void TryLater() { SetTryTimer(true); }

  // A completion that no device makes, after those that were given before. Its qp_num is filled in.
  void Deliver(uint32_t token, const Completion& completion);

  // Takes what the device has completed, to be delivered by later polls: before, and after, an ibv_qp is
  // destroyed whose completions would be lost with it.
  void Collect();
  // Of what was collected until now; Delivered(): a poll has given all of that.
  uint64_t CollectedMark();
  bool Delivered(uint64_t mark);

  // An ibv_cq with room for `entries` more, until Release().
  absl::StatusOr<ibv_cq*> Reserve(uint32_t entries);
  void Release(ibv_cq* cq, uint32_t entries);

  static uint64_t WorkRequestId(uint32_t token, bool receive, uint32_t number) {
    return uint64_t{receive} << 63 | uint64_t{token} << 32 | number;
  }
  // What to give an rdma_cm_id as its context.
  static void* CmContext(uint32_t token) { return reinterpret_cast<void*>(uintptr_t{token}); }

 private:
  static constexpr int kBatch = 32;

  struct Cq {
    ibv_cq* cq = nullptr;
    uint32_t capacity = 0;
    uint32_t reserved = 0;
    bool armed = false;           // An event will come, or has come and was not read yet.
    uint32_t unacknowledged = 0;  // Events read.
  };
  struct Registration {
    VerbsSource* source = nullptr;
    uint32_t generation = 1;
  };
  struct Local {
    uint32_t token;
    Completion completion;
  };

  VerbsCompletionQueue(std::shared_ptr<VerbsDevice> device, uint32_t depth);

  absl::Status Open();
  void Close();
  void CloseIfLost();
  absl::Status Watch(int fd, uint64_t data);
  void SetTryTimer(bool on);

  void OnAsyncEvent(ibv_event_type event) override;

  VerbsSource* Find(uint32_t token) const;
  size_t DeliverLocal(absl::Span<Completion> out);
  size_t PollDevice(absl::Span<Completion> out);
  int TakeWorkCompletions(ibv_wc* out, int max);
  void RunScheduled();
  void TakeNotes();
  void LookAtEvents();
  void TryAgain();
  void Publish();
  bool ArmAndCheck();
  void ReadCqEvent();
  bool PollIntoStash(Cq& cq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cq_mutex_);

  const std::shared_ptr<VerbsDevice> device_;
  const uint32_t depth_;
  std::shared_ptr<VerbsEventChannel> channel_;
  UniqueFd epoll_;
  UniqueFd wake_;       // eventfd(2)
  UniqueFd try_timer_;  // timerfd_create(2)
  // With objects of the device.
  bool open_ = false;
  uint32_t inside_ = 0;  // Sources that have some.
  rdma_cm_id* sentinel_ = nullptr;
  int looks_left_ = 0;  // Whether librdmacm has closed it by now.

  std::vector<Registration> sources_;
  std::vector<uint32_t> free_indexes_;
  std::deque<Local> local_;
  std::vector<uint32_t> scheduled_;
  std::vector<uint32_t> running_;
  uint32_t polls_since_look_ = 0;
  bool polling_ = false;

  Mutex cq_mutex_;
  ibv_comp_channel* comp_channel_ ABSL_GUARDED_BY(cq_mutex_) = nullptr;
  std::vector<std::unique_ptr<Cq>> cqs_ ABSL_GUARDED_BY(cq_mutex_);
  size_t next_cq_ ABSL_GUARDED_BY(cq_mutex_) = 0;
  std::vector<ibv_wc> stash_ ABSL_GUARDED_BY(cq_mutex_);
  size_t stash_taken_ ABSL_GUARDED_BY(cq_mutex_) = 0;
  uint64_t taken_total_ ABSL_GUARDED_BY(cq_mutex_) = 0;  // Ever, from stash_.

  // Shared with Wait(), Wake() and threads that read the device's asynchronous events.
  std::atomic<bool> has_work_ = false;  // local_ or scheduled_ is not empty, outside of Poll().
  std::atomic<bool> look_now_ = false;
  std::atomic<bool> has_notes_ = false;
  std::atomic<bool> woken_ = false;
  absl::Mutex notes_mutex_;
  std::vector<uint32_t> notes_ ABSL_GUARDED_BY(notes_mutex_);
  absl::Status lost_ ABSL_GUARDED_BY(notes_mutex_);  // Not OK: for OnLost(), once.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_COMPLETION_QUEUE_H_
