#ifndef HAWSER_TRANSPORT_RENDEZVOUS_H_
#define HAWSER_TRANSPORT_RENDEZVOUS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/base/peer_table.h"
#include "hawser/transport/buffer_pool.h"
#include "hawser/transport/message.h"
#include "hawser/transport/pull_admission.h"
#include "hawser/transport/read_budget.h"
#include "hawser/transport/send_queue.h"
#include "hawser/transport/wire.h"

// Large messages: the receiver READs the segments that a SEND only described.
namespace hawser::transport {

class Port;
class PullQueue;

// One READ at most: long enough that its cost is that of its bytes, short enough that the small messages
// which wait behind it on the wire are not late (256 KiB are 21 us at 100 Gbit/s).
inline constexpr uint32_t kReadChunkBytes = 256 << 10;

// The READs of one large message. First it waits for memory (see PullAdmission), then for its READs.
class Pull final : public AdmittedPull, public ReadOwner {
 public:
  // Hears of its progress. Called from inside a completion or a timer.
  class Owner {
   public:
    // `sink` takes the remote segments one after the other. The owner calls Start() and PullQueue::Add().
    virtual void OnPullAdmitted(uint16_t slot, Lease sink) = 0;
    // No memory is free for it; it is the next of its host to get some. Perhaps several times.
    virtual void OnPullShort(uint16_t slot) { (void)slot; }
    // `complete`: every byte is in the sink; otherwise it was stopped. The fabric uses the sink no more.
    virtual void OnPullEnded(uint16_t slot, bool complete) = 0;

   protected:
    ~Owner() = default;
  };

  // For the READs of `message` into `sink`. Adds every segment, inline or READ, to `incoming`.
  void Start(const ParsedMessage& message, const Lease& sink, IncomingMessage& incoming);

  uint16_t slot() const override { return slot_; }

 private:
  friend class PullQueue;
  struct Segment {
    uint64_t address;
    uint32_t rkey;
    uint32_t length_bytes;
  };

  bool exhausted() const { return stopped_ || next_segment_ == segments_.size(); }

  void OnAdmitted(Lease sink) override { owner_->OnPullAdmitted(slot_, std::move(sink)); }
  void OnShort() override { owner_->OnPullShort(slot_); }
  void OnReadCompleted(uint32_t bytes, bool ok) override;

  PullQueue* queue_ = nullptr;
  Owner* owner_ = nullptr;
  uint16_t slot_ = 0;
  bool stopped_ = false;
  bool queued_ = false;  // In PullQueue::ready_.
  uint32_t outstanding_ = 0;
  uint32_t next_segment_ = 0;
  uint32_t next_offset_ = 0;  // In that segment.
  uint8_t* sink_ = nullptr;   // Where the next byte goes.
  uint32_t lkey_ = 0;
  absl::InlinedVector<Segment, 2> segments_;
};

// The pulls of one connection: they wait for memory, then take turns, a READ each, within the connection's
// READ depth and the poller's budget.
// Thread:   on the poller.
class PullQueue final : ReadShare::Owner, PullAccount::Owner {
 public:
  PullQueue(Port& port, SendQueue& sends);

  // A message with `bytes` to be READ was announced. `owner` gets the memory for it in OnPullAdmitted(),
  // perhaps inside this call.
  void Announce(Pull* pull, uint64_t bytes, Pull::Owner* owner, uint16_t slot);
  // READs `pull`, which was admitted and started.
  void Add(Pull* pull);
  // READs no more for `pull`, or wants no more memory for it. True: nothing is outstanding, OnPullEnded()
  // will not be called. False: it will be, later.
  bool Stop(Pull* pull);
  // The sink of `pull` was given back, or belongs to the application now: it counts against the peer no more.
  // Nothing happens if it does not count.
  void Release(Pull* pull) { admission_.Release(*pull); }
  // See PullAdmission.
  HeldByHost Detach(Pull* pull) { return admission_.Detach(*pull); }
  // A READ of `pull` has completed; `ok`: its bytes are there.
  void OnReadCompleted(Pull* pull, uint32_t bytes, bool ok);
  // The connection has failed: no further READs, and no memory for what waits.
  void Fail();
  void SetDepth(uint32_t depth) { share_.SetDepth(depth); }

 private:
  // Posts as many READs as may be outstanding.
  void Pump() override;
  PeerHost peer_host() const override;
  bool waits_for_peer() const override;
  void EndForMemory() override;
  void Dequeue(Pull* pull);

  Port& port_;
  SendQueue& sends_;
  PullAdmission& admission_;
  PullAccount account_;
  std::vector<Pull*> ready_;  // With something left to READ, in turn.
  ReadShare share_;
  bool failed_ = false;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_RENDEZVOUS_H_
