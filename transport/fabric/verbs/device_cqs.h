#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_CQS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_CQS_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/base/mutex.h"
#include "hawser/transport/fabric/verbs/device.h"

namespace hawser::fabric {

// What one VerbsCompletionQueue has of the device: as many ibv_cqs as its queue pairs need (each work request
// has a place in one, so that none can overflow, whatever max_cqe is), and the ibv_comp_channel that they
// notify.
//
// Two threads may poll an ibv_cq: the one that polls the completion queue, by Take(), and the one that waits
// for it, by ArmAndCheck(). What anything but Take() finds is stashed, and the next calls of Take() return it
// first. So the completions of an ibv_cq come in order.
//
//   ibv_cq  --Take()----------------------------------------------------------------> caller
//           --ArmAndCheck(), Collect(), Before- and AfterDestruction()--> stash --Take()--> caller
//
// Destroying an ibv_qp drops its completions from the ibv_cq, so they are collected before. The drivers of
// some devices do this without a lock (FreesQueuePairsWithoutLock()): then no thread polls the ibv_cq
// meanwhile.
// Thread:   any; Open() and Close() only while no other thread is here, but in ArmAndCheck() or ReadEvent().
class VerbsDeviceCqs {
 public:
  // The first ibv_cq has about `depth` entries. `handler`: the cq_context, notified of IBV_EVENT_CQ_ERR.
  VerbsDeviceCqs(VerbsDevice& device, uint32_t depth, AsyncEventHandler& handler);

  // Creates the ibv_comp_channel. Close() follows also after an error.
  absl::Status Open();
  // Destroys everything.
  void Close();
  // That of the ibv_comp_channel: readable when ReadEvent() has something to read. -1: not open.
  int event_fd();

  // An ibv_cq with room for `entries` more, until Release(). Only while open. Never do two threads call this
  // at once.
  absl::StatusOr<ibv_cq*> Reserve(uint32_t entries);
  void Release(ibv_cq* cq, uint32_t entries);
  // Later calls of Reserve() return other ones than until now.
  void Retire();

  // At most `max` completions. Returns their number.
  int Take(ibv_wc* out, int max);

  // There will be an event for each completion that arrives from now on. True: there are some already, for
  // Take().
  bool ArmAndCheck();
  // Reads one event, if there is one. Those that there are besides keep event_fd() readable.
  void ReadEvent();

  // See VerbsCompletionQueue, whose calls these are.
  bool Collect(ibv_cq* cq, uint32_t token);
  void BeforeDestruction(ibv_cq* cq, bool exclusive);
  // Returns the tokens of sources whose Collect() may now succeed.
  std::vector<uint32_t> AfterDestruction(ibv_cq* cq, bool exclusive);
  uint64_t CollectedMark();
  bool Delivered(uint64_t mark);

 private:
  struct Cq {
    ibv_cq* cq = nullptr;
    uint32_t capacity = 0;
    uint32_t reserved = 0;
    uint32_t destructions = 0;         // Exclusive ones under way: it must not be polled.
    std::vector<uint32_t> collectors;  // Tokens of sources that wait for their end.
    bool armed = false;                // There will be an event, or there is one that was not read yet.
    uint32_t unacknowledged = 0;       // Events read.
  };

  bool PollIntoStash(Cq& cq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CollectFrom(Cq& cq) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  VerbsDevice& device_;
  AsyncEventHandler& handler_;
  // Chooses the completion vector, and so the core that takes the interrupts of its ibv_cqs.
  const uint32_t number_;
  const uint32_t depth_;

  Mutex mutex_;
  ibv_comp_channel* channel_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<std::unique_ptr<Cq>> cqs_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<ibv_wc> stash_ ABSL_GUARDED_BY(mutex_);
  size_t stash_taken_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t taken_total_ ABSL_GUARDED_BY(mutex_) = 0;  // Ever, from stash_.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_CQS_H_
