#ifndef HAWSER_TRANSPORT_RENDEZVOUS_H_
#define HAWSER_TRANSPORT_RENDEZVOUS_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hawser/transport/buffer_pool.h"
#include "hawser/transport/message.h"
#include "hawser/transport/read_budget.h"
#include "hawser/transport/wire.h"

// Large messages: the receiver READs the segments that a SEND only described.
namespace hawser::transport {

class Connection;
class Pull;

// One READ at most: long enough that its cost is that of its bytes, short enough that the small messages
// which wait behind it on the wire are not late (256 KiB are 21 us at 100 Gbit/s).
inline constexpr uint32_t kReadChunkBytes = 256 << 10;

// The segment table of a large message as a list of what to READ, and where to.
class Pull {
 public:
  // Who hears of the end. Called from inside a completion.
  class Owner {
   public:
    // `complete`: every byte is in the sink; otherwise it was stopped. The fabric uses the sink no more.
    virtual void OnPullEnded(uint16_t slot, bool complete) = 0;

   protected:
    ~Owner() = default;
  };

  // For the READs of `message` into `sink`, which takes the remote segments one after the other. Adds every
  // segment, inline or READ, to `incoming`.
  void Start(const ParsedMessage& message, const Lease& sink, IncomingMessage& incoming, Owner* owner,
             uint16_t slot);

  uint16_t slot() const { return slot_; }

 private:
  friend class PullQueue;
  struct Segment {
    uint64_t address;
    uint32_t rkey;
    uint32_t length_bytes;
  };

  bool exhausted() const { return stopped_ || next_segment_ == segments_.size(); }

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

// The pulls of one connection take turns, a READ each, within the connection's READ depth and the poller's
// budget. Thread: on the poller.
class PullQueue {
 public:
  explicit PullQueue(Connection& connection);

  void Add(Pull* pull);
  // READs no more for `pull`. True: nothing is outstanding, OnPullEnded() will not be called. False: it will
  // be, later.
  bool Stop(Pull* pull);
  // Posts as many READs as may be outstanding.
  void Pump();
  // A READ of `pull` has completed; `ok`: its bytes are there.
  void OnReadCompleted(Pull* pull, uint32_t bytes, bool ok);
  // The connection has failed: no further READs.
  void Fail() { failed_ = true; }
  void SetDepth(uint32_t depth) { share_.SetDepth(depth); }

 private:
  Connection& connection_;
  std::vector<Pull*> ready_;  // With something left to READ, in turn.
  ReadShare share_;
  bool failed_ = false;

  void Dequeue(Pull* pull);
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_RENDEZVOUS_H_
