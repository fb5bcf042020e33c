#ifndef HAWSER_TRANSPORT_CONNECTION_INBOUND_H_
#define HAWSER_TRANSPORT_CONNECTION_INBOUND_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hawser/base/peer_table.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/connection/send_queue.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/sharing/read_admission.h"
#include "hawser/transport/sharing/read_budget.h"
#include "hawser/transport/wire/message.h"
#include "hawser/transport/wire/wire.h"

// One incoming message: whole, or as a table of what to READ.
namespace hawser::transport {

class Inbounds;

// Most bytes of one READ: long enough that its bytes dominate its cost, short enough not to delay the small
// messages that wait behind it on the wire (256 KiB are 21 us at 100 Gbit/s).
inline constexpr uint32_t kReadChunkBytes = 256 << 10;

// The message that a slot receives. Its memory moves round this ring:
//
//   fabric (receive) -> Inbounds::Receive() -> [pool -> fabric, by READs of at most kReadChunkBytes ->]
//   slot -> application -> pool
//
// Receive() returns a message that came whole, and never stores it here. An announced message waits for
// memory (ReadAdmission), then for its READs, and ends with its owner's OnRead(). What came in the receive is
// copied behind what is READ, so that the receive returns to the pool. Its memory counts against
// the peer's host until Release(), or after Detach() as long as the HeldByHost lives.
//
// One segment may land in memory of the program instead (Landing), which moves round a ring of its own:
//
//   program -> Inbounds::Receive() -> fabric, by READs -> program, with OnRead() or OnStopped(), or once the
//   queue pair of a connection that has failed is destroyed
//
// It needs no memory of the pool, so a message all of whose READs land waits for none, and keeps its receive.
// Thread:   on the poller.
// Lifetime: a part of a slot, which outlives the READs: it is destroyed with its connection.
class Inbound final : public AnnouncedMessage, public ReadOwner {
 public:
  enum class State : uint8_t {
    kIdle,     // Nothing comes.
    kWaiting,  // For memory.
    kReading,
    kStopping,  // No slot wants it, and some READs are outstanding.
    kImpossible,
  };
  enum class Event : uint8_t { kAnnounced, kAdmitted, kRead, kStopped, kLastRead };
  // kRead: all of it is there; kStopped: no slot wants it; kLastRead: the message is not wanted, or one of
  // its READs failed, and no READ is outstanding any more. kImpossible: only a bug of ours could cause this
  // event here.
  static State Next(State state, Event event);

  // Notified of how an announced message ends. Called in a turn (completion, timer, free memory), or,
  // OnNoMemory() only, inside Inbounds::Fetch().
  class Owner {
   public:
    virtual void OnRead(uint16_t slot, IncomingMessagePtr message) = 0;
    // It was stopped, or one of its READs failed. The fabric no longer uses its memory.
    virtual void OnStopped(uint16_t slot) = 0;
    // Memory of the program, for the longest segment that fits. Asked inside Inbounds::Receive(). Null: none.
    virtual const Landing* landing(uint16_t slot) const {
      (void)slot;
      return nullptr;
    }
    // See AnnouncedMessage.
    virtual void OnNoMemory(uint16_t slot) { (void)slot; }

   protected:
    ~Owner() = default;
  };

  State state() const { return state_; }
  // It waits for memory, after none was free.
  bool was_short() const { return state_ == State::kWaiting && was_short_; }
  // The fabric may be writing to memory of the program.
  bool lands() const {
    return (state_ == State::kReading || state_ == State::kStopping) && landing_.length_bytes != 0;
  }
  // Of the first segment that was READ, inside OnRead().
  uint32_t first_rkey() const { return segments_.front().rkey; }
  // `address` is in the memory that it was READ into, which counts against the peer's host.
  bool counts(const uint8_t* address) const {
    return holds_memory() && address >= sink_begin_ && address < sink_end_;
  }

 private:
  friend class Inbounds;
  struct Segment {
    uint64_t address;
    uint32_t rkey;
    uint32_t length_bytes;
    uint8_t* sink;  // Where it goes.
    bool lands;     // That is memory of the program.
  };
  // The owner of READs that land: their bytes are not of the sink that ReadAdmission has given.
  class LandingReads final : public ReadOwner {
   public:
    explicit LandingReads(Inbound& inbound) : inbound_(inbound) {}
    void OnReadCompleted(uint32_t bytes, bool ok) override;
    uint16_t slot() const override { return inbound_.slot_; }

   private:
    Inbound& inbound_;
  };

  void Move(Event event);
  // Sets landing_ and landing_entry_: what of `parsed` lands in `landing`, if something does.
  void ChooseLanding(const ParsedMessage& parsed, const Landing& landing);
  // No READ follows: it is stopped, or all are posted.
  bool exhausted() const { return state_ == State::kStopping || next_segment_ == segments_.size(); }

  // AnnouncedMessage
  void OnAdmitted(Lease sink) override;
  void OnNoMemory() override;
  // ReadOwner
  void OnReadCompleted(uint32_t bytes, bool ok) override;
  uint16_t slot() const override { return slot_; }

  State state_ = State::kIdle;
  bool was_short_ = false;
  bool queued_ = false;  // In Inbounds::ready_.
  bool sink_is_open_ = false;
  bool landing_is_open_ = false;
  uint16_t slot_ = 0;
  Inbounds* inbounds_ = nullptr;
  Owner* owner_ = nullptr;
  IncomingMessagePtr message_;  // Null in kIdle.
  uint32_t outstanding_ = 0;    // READs.
  uint32_t next_segment_ = 0;
  uint32_t next_offset_ = 0;  // In that segment.
  uint8_t* sink_begin_ = nullptr;
  const uint8_t* sink_end_ = nullptr;
  uint32_t lkey_ = 0;
  Landing landing_;  // As long as what lands there. Of length 0: nothing does.
  size_t landing_entry_ = 0;
  LandingReads landing_reads_{*this};
  absl::InlinedVector<Segment, 2> segments_;
};

// The messages that one connection receives. Announced messages wait for memory, then take turns, one READ
// each, within the connection's READ depth and the poller's budget.
// Thread:   on the poller.
class Inbounds final : ReadShare::Owner, ReadAccount::Owner {
 public:
  Inbounds(Port& port, SendQueue& sends);

  enum class Fit {
    kWhole,      // `message` is here.
    kAnnounced,  // `owner` calls Fetch() next.
    kTooLarge,   // Larger than ConnectionOptions::message_bytes_max: refused.
    kNeverFits,  // Larger than the whole memory pool, without what lands: refused.
  };
  // `parsed` is in `buffer`, of which it uses `length_bytes`. kWhole: sets `message`. `owner` is called with
  // the slot of `parsed`.
  Fit Receive(Inbound& inbound, const ParsedMessage& parsed, Lease&& buffer, uint32_t length_bytes,
              Inbound::Owner& owner, IncomingMessagePtr& message);

  // Asks for memory for what was announced and does not land, and READs all of it: OnRead() or OnStopped()
  // follows, never inside this call. OnNoMemory() may be called inside it. If a READ finds no room, the
  // connection has failed.
  void Fetch(Inbound& inbound, const ParsedMessage& parsed);
  // The announced `inbound` is not wanted any more. True: it has ended. False: OnStopped() follows.
  bool Stop(Inbound& inbound);
  // The memory READ for `inbound` no longer counts: it was returned, or the application owns it. No effect if
  // it does not count.
  void Release(Inbound& inbound) { admission_.Release(inbound); }
  // See ReadAdmission.
  HeldByHost Detach(Inbound& inbound) { return admission_.Detach(inbound); }
  // The completion of a push that was taken.
  void OnTaken(uint32_t number, bool ok);
  // The fabric fills memory with one.
  bool has_taken() const { return !taken_.empty(); }
  // The connection has failed: no further READs, and no memory for what waits.
  void Fail();
  // The queue pair is destroyed: it fills no memory.
  void Abandon() {
    while (has_taken()) OnTaken(taken_.back().number, false);
  }
  void SetDepth(uint32_t depth) { share_.SetDepth(depth); }

  // When a READ, or a push that was taken, last completed, or the first became outstanding: of the two kinds,
  // the earlier. kNever: none is outstanding.
  int64_t stands_still_since_ns() const {
    return std::min(sends_.reads_stand_still_since_ns(), taken_.empty() ? kNever : taken_moved_ns_);
  }
  // What stands_still_since_ns() is about: "a READ of 4096 bytes with rkey 77 for slot 3".
  std::string DescribeOldest() const;

 private:
  friend class Inbound;

  void Start(Inbound& inbound);
  // Of memory that takes several READs: see fabric::QueuePair. True: it is open.
  bool OpenSink(uint8_t* address, uint64_t bytes);
  // False: its memory is not to be used before the queue pair is destroyed, and the connection will fail.
  bool CloseSink(Inbound& inbound);
  void TakePush(Inbound& inbound);
  void OnQueued(Inbound& inbound, uint32_t bytes);
  void OnReadCompleted(Inbound& inbound, uint32_t bytes, bool ok, bool lands);
  void OnArrived(Inbound& inbound, uint32_t bytes, bool ok, bool lands);
  // No READ of it is outstanding any more.
  void End(Inbound& inbound);
  void Dequeue(Inbound& inbound);

  // ReadShare::Owner: posts as many READs as may be outstanding.
  void Pump() override;

  // ReadAccount::Owner
  PeerHost peer_host() const override;
  bool waits_for_peer() const override;
  void EndForMemory() override;

  Port& port_;
  SendQueue& sends_;
  ReadAdmission& admission_;
  ReadAccount account_;
  std::vector<Inbound*> ready_;  // With something left to READ, in turn.
  ReadShare share_;
  // The fabric writes a push of the peer where the READ would go (fabric::QueuePair::TakePush()).
  struct Taken {
    uint32_t number;  // In WorkId.
    uint32_t bytes;
    Inbound* inbound;
    bool lands;
  };
  std::vector<Taken> taken_;  // Few: at most one for each slot.
  uint32_t next_taken_ = 0;
  int64_t taken_moved_ns_ = 0;  // When one completed, or the first was taken.
  bool failed_ = false;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_INBOUND_H_
