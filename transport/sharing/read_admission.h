#ifndef HAWSER_TRANSPORT_SHARING_READ_ADMISSION_H_
#define HAWSER_TRANSPORT_SHARING_READ_ADMISSION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/base/peer_table.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/sharing/memory_queue.h"
#include "hawser/transport/sharing/poller_services.h"
#include "hawser/transport/sharing/read_ledger.h"
#include "hawser/transport/sharing/watch_interval.h"

namespace hawser::transport {

class AnnouncedMessage;
class ReadAccount;
class ReadAdmission;
struct InAdmission;
struct InHolders;
struct InHostLane;
struct InRing;

// Announced messages of one connection that wait for memory. There is a lane for short messages and one for
// long ones, so that a long one does not keep short ones waiting.
struct ReadLane final : ListLink<InHostLane> {
  ReadAccount* account = nullptr;
  IntrusiveList<AnnouncedMessage, InAdmission> waiting;  // In the order of their announcements.
  uint64_t unposted_bytes = 0;  // Bytes of admitted messages for which no READ was queued.
};

// The connections of one host to this poller.
struct ReadHost {
  struct Lane final : ListLink<InRing> {
    ReadHost* host = nullptr;
    IntrusiveList<ReadLane, InHostLane> connections;  // Whose next message may be admitted, in turn.
    uint64_t refused_in_pass = 0;
  };

  ReadLedger::Host* held = nullptr;  // What it holds, on all pollers.
  size_t owners = 0;                 // Accounts, and what HeldByHost keeps of it.
  std::array<Lane, 2> lanes;
};

// Memory that still counts against a host after the message that it was READ for was answered, or its
// connection closed. Move-only; empty if there is none.
// Thread:   on the poller.
// Lifetime: ends before its poller.
class HeldByHost {
 public:
  HeldByHost() = default;
  HeldByHost(HeldByHost&& other) noexcept { *this = std::move(other); }
  HeldByHost& operator=(HeldByHost&& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(host_, other.host_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HeldByHost();
  explicit operator bool() const { return admission_ != nullptr; }

 private:
  friend class ReadAdmission;

  ReadAdmission* admission_ = nullptr;
  ReadHost* host_ = nullptr;
  uint64_t bytes_ = 0;
};

// One large message of a connection that waits for memory, or holds some.
// Thread:   on the poller.
class AnnouncedMessage : public ListLink<InAdmission> {
 public:
  // Its sink counts against its host.
  bool holds_memory() const { return holds_memory_; }

 protected:
  virtual ~AnnouncedMessage() = default;

  // `sink` is for all that was announced. Called in a turn (completion, timer, news of free memory), or
  // inside ReadAdmission::Announce(), as is OnNoMemory().
  virtual void OnAdmitted(Lease sink) = 0;
  // No memory is free for it; it is the next of its host to get some. Perhaps several times.
  virtual void OnNoMemory() = 0;

 private:
  friend class ReadAdmission;

  ReadAccount* account_ = nullptr;
  uint64_t read_bytes_ = 0;
  uint64_t sink_bytes_ = 0;
  uint64_t unposted_bytes_ = 0;
  uint64_t unread_bytes_ = 0;
  bool holds_memory_ = false;
};

// What one connection has announced, and what memory it holds for it.
// Lifetime: a part of its owner.
class ReadAccount final : public ListLink<InHolders> {
 public:
  class Owner {
   public:
    virtual PeerHost peer_host() const = 0;
    // READs are posted, and the peer does not let them complete.
    virtual bool waits_for_peer() const = 0;
    // Ends the connection: others wait for the memory that it holds.
    virtual void EndForMemory() = 0;

   protected:
    ~Owner() = default;
  };

  ReadAccount(ReadAdmission& admission, Owner& owner);
  ~ReadAccount();

 private:
  friend class ReadAdmission;

  ReadAdmission& admission_;
  Owner& owner_;
  ReadHost* host_ = nullptr;  // Null before the first large message.
  std::array<ReadLane, 2> lanes_;
  uint64_t held_bytes_ = 0;    // Sinks of admitted messages, until Release().
  uint64_t unread_bytes_ = 0;  // Those that have not arrived.
  uint64_t read_bytes_ = 0;    // Bytes that have ever arrived.
  // At the last look of the watch, by its number.
  uint64_t look_ = 0;
  uint64_t unread_bytes_then_ = 0;
  uint64_t read_bytes_then_ = 0;
  uint64_t claimed_bytes_ = 0;  // The connection was ended to get these back.
};

// Decides which of the large messages that were announced to one poller get memory, and when.
//
// An announcement costs its peer a few bytes and would cost us up to the largest message, so memory is leased
// no earlier than READs into it can be posted:
//  - A connection has one long message (more than kReadAheadBytes) and a few short ones under way; the next
//    is admitted when less than kReadAheadBytes of those before it are left to be posted.
//  - A host (PeerHost) holds at most a share of the memory that is free or its own: so much for long
//    messages, somewhat more for short ones. A message always finds room when no other message holds any.
//  - Hosts take turns, then connections of one host; messages of one connection are admitted in their order.
// Announced messages that are not admitted wait here and cost nothing until memory is returned. Their
// deadlines are kept by their owners, which withdraw them.
//
// While messages wait for memory, here or on another poller, a connection that holds some is ended if its
// READs hardly go on: they cannot be revoked otherwise (see kWatchInterval).
//
// Thread: on the poller.
class ReadAdmission final : ReadLedger::Member {
 public:
  // What a connection can have outstanding.
  static constexpr uint64_t kReadAheadBytes = 4 << 20;
  // How often the connections that hold memory for bytes that have not arrived are checked. If messages of
  // some poller have waited since the last check, a connection is ended that has fetched less since then than
  // the greater of kWatchedBytesMin and one in kWatchedFraction of the bytes that were left, and not all of
  // these.
  static constexpr absl::Duration kWatchInterval = absl::Seconds(1);
  static constexpr uint64_t kWatchedBytesMin = 1 << 20;
  static constexpr uint64_t kWatchedFraction = 64;

  // `ledger`: that of the poller's buffer pool. `host_share`: of the memory that is free or its own, what a
  // host may hold for long messages; 0 to 1.
  ReadAdmission(PollerServices& poller, ReadLedger& ledger, double host_share);
  ~ReadAdmission();

  // The new `message` needs a sink for `read_bytes`, which will be READ, and `other_bytes` more. It gets it
  // in OnAdmitted(), perhaps inside this call.
  void Announce(AnnouncedMessage& message, uint64_t read_bytes, uint64_t other_bytes, ReadAccount& account);
  // Removes a message that waits. No effect if it does not wait.
  void Withdraw(AnnouncedMessage& message);
  // A connection ends: admits none of its messages from now on.
  void WithdrawAll(ReadAccount& account);

  // ---- Of an admitted message.
  // A READ of `bytes` was queued.
  void OnReadQueued(AnnouncedMessage& message, uint64_t bytes);
  // `bytes` have arrived.
  void OnRead(AnnouncedMessage& message, uint64_t bytes);
  // It has ended: the rest will not be READ. Its sink still counts.
  void OnReadsEnded(AnnouncedMessage& message);
  // Its sink does not count any more. No effect if it did not.
  void Release(AnnouncedMessage& message) {
    if (message.holds_memory_) [[unlikely]]
      ReleaseHeld(message);
  }
  // Its sink still counts, against the host alone, while the result lives; `message` is free for another
  // message.
  HeldByHost Detach(AnnouncedMessage& message);

  // A host holds fewer bytes of responses: messages of any poller may be admitted.
  void OnOthersReleased() {
    notify_others_ = true;
    PumpSoon();
  }

  // Times that memory was asked for; for tests.
  uint64_t attempts() const { return attempts_; }

  MemoryNews& news() { return news_; }
  // The poller ends.
  void Stop();

 private:
  friend class HeldByHost;
  friend class ReadAccount;

  void ReleaseHeld(AnnouncedMessage& message);
  static size_t LaneOf(const AnnouncedMessage& message);
  ReadHost& HostOf(ReadAccount& account);
  // `bytes` of `host` do not count any more, and it has one owner less.
  void Leave(ReadHost& host, uint64_t bytes);
  // Puts `lane` in its host's line, or takes it out, as its next message may be admitted or not.
  void Place(ReadLane& lane, size_t index);
  void PumpSoon();
  void Pump();
  // Call it after messages were refused or withdrawn. Updates the ledger, and whether the pool notifies this
  // poller.
  void NoteWaiting();
  // Announced messages were withdrawn; the next one may be smaller.
  void OnWithdrawn();
  void ServeRing(size_t index);
  bool Admit(AnnouncedMessage& message, ReadLane& lane, size_t index);
  // `bytes` of free memory would have admitted a message.
  void NoteRefusal(size_t bytes, Shortage why);
  bool any_waits() const { return !rings_[0].empty() || !rings_[1].empty(); }
  uint64_t WaitingBytes() const;
  // Records the progress of the accounts that hold memory, and comes back to it after kWatchInterval.
  void Look();
  void Watch();
  bool HardlyMoves(const ReadAccount& account) const;

  // ReadLedger::Member
  void OnReleased() override { news_.OnMemoryMayBeFree(); }

  PollerServices& poller_;
  ReadLedger& ledger_;
  const std::array<double, 2> shares_;  // The share of each lane.
  absl::flat_hash_map<PeerHost, std::unique_ptr<ReadHost>> hosts_;
  std::array<IntrusiveList<ReadHost::Lane, InRing>, 2> rings_;  // Hosts that wait, in turn.
  IntrusiveList<ReadAccount, InHolders> holders_;               // With unread bytes; the oldest first.
  uint64_t attempts_ = 0;
  uint64_t looks_ = 0;
  int64_t looked_ns_ = 0;
  size_t refused_bytes_ = 0;  // The least of free memory that lets one of those that wait go on.
  Shortage why_ = Shortage::kAtLimit;
  bool misses_ = false;         // A message waits for what others hold, not only for the pool to grow.
  bool said_misses_ = false;    // The ledger counts it.
  bool awaiting_ = false;       // The pool will notify news_.
  bool notify_others_ = false;  // Memory was released that other members may wait for.
  uint64_t passes_ = 0;
  bool pumping_ = false;
  bool again_ = false;
  bool stopped_ = false;
  MemoryNews news_;
  Timer pump_timer_;
  Timer watch_timer_;  // While messages hold memory, or wait for some.
  WatchInterval interval_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SHARING_READ_ADMISSION_H_
