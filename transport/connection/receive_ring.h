#ifndef HAWSER_TRANSPORT_CONNECTION_RECEIVE_RING_H_
#define HAWSER_TRANSPORT_CONNECTION_RECEIVE_RING_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/sharing/memory_queue.h"

namespace hawser::transport {

class Port;

// The receives of one connection. A received message takes its buffer along; the ring is refilled from the
// pool, so code that keeps a message starves no other. What is missing is posted in chains, which spares
// small calls a post each. How many receives are posted depends on what bounds the peer:
//
//   kForAnswers   The peer answers: each message of ours brings its receive. The ring holds one receive for
//                 each exchange in flight, what control may need, and a few to spare. It shrinks as answers
//                 come. While there are large messages it has what kPromised has: one that READs until the
//                 pool is empty must be able to go on.
//   kPromised     The peer sends requests, and the handshake has promised it a receive for each slot. All are
//                 posted at any time, and some to spare.
//   kWaitedFor    Likewise, but a message that finds no receive waits (QueuePairOptions::sends_wait). The
//                 ring starts with two receives. It doubles, up to what kPromised has, each time one turn
//                 takes nearly all of it. It must not be empty while something else has to come through
//                 behind a message that waits (the answer to a READ): then, too, it has what kPromised has.
//   kCredits      The peer sends requests, and has been given credits for some (credits.h). The ring holds a
//                 receive for each credit, two for control, and a few to spare while it is busy.
//
// So a message of an honest peer never meets RNR. An idle connection holds one or two receives, with kCredits
// four. There is more for kPromised; and a few to spare where the fabric cannot withdraw receives: kCredits
// does not post them again, so each of the peer's pings takes one away.
// A small message is copied out of its buffer, which is then posted again as it is: PutBack(). What the next
// refill does not post returns to the pool. A small message that the fabric offers needs no buffer at all:
// the receive that it would have completed stays posted.
// Thread:   on the poller.
class ReceiveRing final : public MemoryQueue::Waiter {
 public:
  explicit ReceiveRing(Port& port) : port_(port) {}

  enum class Kind : uint8_t { kForAnswers, kPromised, kWaitedFor, kCredits };

  // What a ring of so many slots leases from the pool at most.
  static uint64_t LeasedBytes(uint32_t slots, uint32_t buffer_bytes);

  // Returns the receive depth that the queue pair needs: Depth().
  uint32_t Size(uint32_t slots, uint32_t buffer_bytes, Kind kind);
  static uint32_t Depth(uint32_t slots);

  // Posts what is missing, in chains. `may_come`: the messages that the peer may send after what we have
  // queued; only kForAnswers heeds it. `control_messages`: that have come so far, modulo 2^32; a ring does
  // not grow for them. False: the pool has no memory now (see Connection::Flush()). A failed post fails the
  // connection.
  bool Refill(uint32_t may_come, uint32_t control_messages);
  // kCredits: wants receives for so many requests of the peer, at most the slots; FirstCredits() at first.
  // Posts what is missing now. False: there is no memory now. It posts them once there is, and then marks the
  // connection for a flush. A failed post fails the connection.
  bool Allow(uint32_t requests);
  // They are posted.
  bool has_allowed() const { return posted() >= posted_min_; }
  // Refills it when the pool has memory, and then marks the connection for a flush.
  void RefillLater();

  // The buffer of entry `number`, which has completed. Null: there is no such receive.
  Lease Take(uint32_t number);

  // Likewise, in place; until PutBack(), or until Take().
  const uint8_t* Peek(uint32_t number) const {
    return number < entries_.size() && entries_[number] ? entries_[number].data() : nullptr;
  }
  // What Peek() has returned is not used any more.
  void PutBack(uint32_t number) {
    missing_.push_back(number);
    ++put_back_;
  }
  // Returns to the pool what was put back, and was not posted again.
  void ReleasePutBack() {
    if (put_back_ != 0) DropPutBack();
  }

  // The queue pair is no more: none is posted.
  void Abandon();

  // Something is about to be READ, which takes memory: from the next refill until OnIdle() the ring has as
  // many as kPromised. False: it had.
  bool Promise();
  // Nothing is under way. If there was next to nothing since the last call, withdraws what an idle connection
  // does not need, as far as the fabric can.
  void OnIdle(uint32_t may_come);

  // kForAnswers: answers that the fabric has offered have left their receives, and half of those that are
  // posted, or more, are of no use now. Then WithdrawSurplus().
  bool has_surplus(uint32_t may_come) const {
    return kind_ == Kind::kForAnswers && !full_ &&
           posted() > may_come + std::max<uint32_t>(may_come, spare_max_);
  }
  void WithdrawSurplus(uint32_t may_come) {
    wanted_ = may_come;
    Withdraw();
  }

  Kind kind() const { return kind_; }
  // There are fewer than it takes to go on, or all that there was to spare has been used up.
  bool wants_refill(uint32_t may_come) const {
    return posted() < (kind_ == Kind::kForAnswers && !full_ ? may_come : posted_min_);
  }
  uint32_t posted() const { return static_cast<uint32_t>(entries_.size() - missing_.size()); }

 private:
  bool OnMemory(Shortage& why) override;
  bool Refill(Shortage& why);
  void DropPutBack();
  // Those that are more than wanted_, as far as the fabric can.
  void Withdraw();
  // `control_messages`: since the last refill.
  void Grow(uint32_t control_messages);
  // For kPromised and kWaitedFor.
  void Want(uint32_t wanted);
  // For kCredits: as many as allowed_, and to spare.
  void WantAllowed(uint32_t spare);

  Port& port_;
  uint32_t buffer_bytes_ = 0;
  Kind kind_ = Kind::kPromised;
  bool opened_ = false;            // It was refilled before.
  bool full_ = false;              // By Promise().
  uint8_t spare_max_ = 1;          // Beside what is promised.
  uint32_t spare_ = 0;             // kForAnswers, kCredits: grows with use.
  uint32_t allowed_ = 0;           // kCredits: requests of the peer.
  uint32_t may_come_ = 0;          // kForAnswers: at the last refill.
  uint32_t wanted_ = 0;            // Receives, after a refill.
  uint32_t posted_min_ = 0;        // With fewer it is refilled, unless only `may_come` counts.
  uint32_t refills_ = 0;           // Since OnIdle().
  uint32_t control_messages_ = 0;  // At the last refill.
  uint32_t put_back_ = 0;          // Of missing_: with a buffer.
  std::vector<Lease> entries_;
  std::vector<uint32_t> missing_;  // Entries with no receive posted.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_RECEIVE_RING_H_
