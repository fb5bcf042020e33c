#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_COMPLETION_QUEUE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_COMPLETION_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
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

// A queue pair or a listener, as its completion queue sees it. A token in the wr_id of its work requests, and
// in the context of its rdma_cm_id, identifies it, so that late events of a destroyed one are dropped. All
// calls come from inside Poll().
class VerbsSource {
 public:
  virtual ~VerbsSource() = default;

  // May destroy this, or any other source.
  virtual void OnCmEvent(VerbsCmEvent& event) = 0;

  // The work request with `number` has completed. True: `out` is a completion for the caller.
  virtual bool OnCompletion(const ibv_wc&, bool /*receive*/, uint32_t /*number*/, Completion&) {
    return false;
  }

  // For its completions. It changes when the ibv_qp is destroyed.
  virtual uint32_t qp_num() const { return 0; }

  // Once for each Schedule() or Notify(). May destroy this, or any other source.
  virtual void OnTurn() {}

  // The device, or its completion queue, has failed for good: there will be no more completions.
  virtual void OnLost(const absl::Status& /*why*/) {}

  // A second after TryLater().
  virtual void OnTryAgain() {}
};

// An ibv_comp_channel with as many ibv_cq as its queue pairs need (each work request has a place in one, so
// that none can overflow, whatever max_cqe is), an rdma_event_channel, and an epoll set of everything that
// Wait() waits for.
//
// One thread at a time calls Poll(). Wait() may run at the same time. Both poll an ibv_cq, under a mutex:
// Wait() keeps the completions that it finds after arming for the next Poll(), in order.
//
// Commands of its sources run on the device's control thread (RunCommand()), and Notify() brings back the
// result. What they use here they may call from there. The destructor waits for them.
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
  void Unregister(uint32_t token);  // Drops its undelivered events.
  void Schedule(uint32_t token);    // OnTurn() will be called.
  void Notify(uint32_t token);      // Likewise; from any thread.

  // Encloses a source's use of the device, rdma_cm_id included: a removed device is closed after the last
  // source has left. Enter() opens it again. Unavailable: it is gone.
  absl::Status Enter();
  void Leave();
  void LeaveSoon();  // Leave(), in a later call on the thread of this queue. From any thread.

  // Runs `command` on the control thread of the device, after the earlier ones; or, if `alone` is not null,
  // on a thread for that key, after the earlier ones with it. This queue, its channel and the device exist
  // until it has run and was destroyed.
  void RunCommand(const void* alone, absl::AnyInvocable<void()> command);

  // A connection of the device has this address. If the driver cannot take a device from its users, as
  // software devices cannot, only the ids that are bound to it are notified of its removal, and it waits for
  // all users. So one such id always exists.
  void BindSentinel(const SocketAddress& local);
  // OnTryAgain() of all sources will be called.
  void TryLater() { SetTryTimer(true); }

  // Adds a completion of no device, after the earlier ones. Fills in its qp_num.
  void Deliver(uint32_t token, const Completion& completion);

  // Collects the completions of `cq`, if it is not null, for later polls to deliver. False: no thread may
  // poll it at the moment, see BeforeDestruction(); OnTurn() of the source with `token` is called when one
  // may.
  bool Collect(ibv_cq* cq, uint32_t token);
  // Enclose the destruction of an ibv_qp of `cq`, which would lose its completions: both collect them. From
  // any thread. `exclusive`: no thread polls `cq` in between. Poll() goes on without it.
  void BeforeDestruction(ibv_cq* cq, bool exclusive);
  void AfterDestruction(ibv_cq* cq, bool exclusive);
  // Held by a thread that destroys such an ibv_qp.
  absl::Mutex& destroying() { return destroying_; }
  // A mark of what is collected until now. Delivered(): polls have returned all of it.
  uint64_t CollectedMark();
  bool Delivered(uint64_t mark);

  // An ibv_cq with room for `entries` more, until Release(). From any thread.
  absl::StatusOr<ibv_cq*> Reserve(uint32_t entries);
  void Release(ibv_cq* cq, uint32_t entries);

  static uint64_t WorkRequestId(uint32_t token, bool receive, uint32_t number) {
    return uint64_t{receive} << 63 | uint64_t{token} << 32 | number;
  }
  // The context for an rdma_cm_id.
  static void* CmContext(uint32_t token) { return reinterpret_cast<void*>(uintptr_t{token}); }

 private:
  static constexpr int kBatch = 32;

  struct Cq {
    ibv_cq* cq = nullptr;
    uint32_t capacity = 0;
    uint32_t reserved = 0;
    uint32_t destructions = 0;         // Exclusive ones under way: it must not be polled.
    std::vector<uint32_t> collectors;  // Tokens of sources that wait for their end.
    bool armed = false;                // There will be an event, or there is one that was not read yet.
    uint32_t unacknowledged = 0;       // Events read.
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
  void TakeLeaves();
  void NotifyLost(const absl::Status& lost);
  void LookAtEvents();
  void TryAgain();
  void Publish();
  bool ArmAndCheck();
  void ReadCqEvent();
  bool PollIntoStash(Cq& cq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cq_mutex_);
  void CollectFrom(Cq& cq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cq_mutex_);

  const std::shared_ptr<VerbsDevice> device_;
  // Chooses the completion vector, and so the core that takes the interrupts of its ibv_cqs.
  const uint32_t number_;
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

  absl::Mutex destroying_;
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
  uint32_t leaves_ ABSL_GUARDED_BY(notes_mutex_) = 0;
  uint32_t commands_ ABSL_GUARDED_BY(notes_mutex_) = 0;  // That have not ended.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_COMPLETION_QUEUE_H_
