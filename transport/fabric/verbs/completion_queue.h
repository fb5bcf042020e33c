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
#include "hawser/base/unique_fd.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/device_cqs.h"
#include "hawser/transport/fabric/verbs/event_channel.h"
#include "hawser/transport/fabric/verbs/sentinel.h"
#include "hawser/transport/fabric/verbs/source.h"

namespace hawser::fabric {

// The ibv_cqs of its queue pairs (VerbsDeviceCqs), an rdma_event_channel, and an epoll set of everything that
// Wait() waits for. It calls its sources: queue pairs and listeners.
//
// One thread at a time calls Poll(). Wait() may run at the same time. Both poll the ibv_cqs: the completions
// that Wait() finds are kept for the next Poll(), in order.
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
  uint32_t Register(VerbsSource& source) { return sources_.Add(source); }
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

  // A connection of the device has this address: from now on a VerbsSentinel is bound to it.
  void BindSentinel(const SocketAddress& local) {
    if (open_) sentinel_.Bind(*channel_, local);
  }
  // OnTryAgain() of all sources will be called.
  void TryLater() { SetTryTimer(true); }

  // Adds a completion of no device, after the earlier ones. Fills in its qp_num.
  void Deliver(uint32_t token, const Completion& completion);

  // Collects the completions of `cq`, if it is not null, for later polls to deliver. False: no thread may
  // poll it at the moment, see BeforeDestruction(); OnTurn() of the source with `token` is called when one
  // may.
  bool Collect(ibv_cq* cq, uint32_t token) { return cqs_.Collect(cq, token); }
  // Enclose the destruction of an ibv_qp of `cq`, which would lose its completions: both collect them. From
  // any thread. `exclusive`: no thread polls `cq` in between. Poll() goes on without it.
  void BeforeDestruction(ibv_cq* cq, bool exclusive) { cqs_.BeforeDestruction(cq, exclusive); }
  void AfterDestruction(ibv_cq* cq, bool exclusive);
  // Held by a thread that destroys such an ibv_qp.
  absl::Mutex& destroying() { return destroying_; }
  // A mark of what is collected until now. Delivered(): polls have returned all of it.
  uint64_t CollectedMark() { return cqs_.CollectedMark(); }
  bool Delivered(uint64_t mark) { return cqs_.Delivered(mark); }

  // An ibv_cq with room for `entries` more, until Release(). From any thread.
  absl::StatusOr<ibv_cq*> Reserve(uint32_t entries) { return cqs_.Reserve(entries); }
  void Release(ibv_cq* cq, uint32_t entries) { cqs_.Release(cq, entries); }

  static uint64_t WorkRequestId(uint32_t token, bool receive, uint32_t number) {
    return uint64_t{receive} << 63 | uint64_t{token} << 32 | number;
  }
  // The context for an rdma_cm_id.
  static void* CmContext(uint32_t token) { return reinterpret_cast<void*>(uintptr_t{token}); }

 private:
  static constexpr int kBatch = 32;

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

  size_t DeliverLocal(absl::Span<Completion> out);
  size_t PollDevice(absl::Span<Completion> out);
  void RunScheduled();
  void TakeNotes();
  void TakeLeaves();
  void NotifyLost(const absl::Status& lost);
  void LookAtEvents();
  void TryAgain();
  void Publish();

  const std::shared_ptr<VerbsDevice> device_;
  VerbsDeviceCqs cqs_;
  std::shared_ptr<VerbsEventChannel> channel_;
  UniqueFd epoll_;
  UniqueFd wake_;       // eventfd(2)
  UniqueFd try_timer_;  // timerfd_create(2)
  // With objects of the device.
  bool open_ = false;
  uint32_t inside_ = 0;  // Sources that have some.
  VerbsSentinel sentinel_;
  int looks_left_ = 0;  // Whether librdmacm has closed it by now.

  VerbsSourceTable sources_;
  std::deque<Local> local_;
  std::vector<uint32_t> scheduled_;
  std::vector<uint32_t> running_;
  uint32_t polls_since_look_ = 0;
  bool polling_ = false;

  absl::Mutex destroying_;

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
