#ifndef HAWSER_TRANSPORT_SHARING_RESPONSE_WATCH_H_
#define HAWSER_TRANSPORT_SHARING_RESPONSE_WATCH_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/base/peer_table.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/sharing/poller_services.h"
#include "hawser/transport/sharing/read_ledger.h"
#include "hawser/transport/sharing/watch_interval.h"
#include "hawser/transport/wire/message.h"

namespace hawser::transport {

class ReadAdmission;
class ResponseWatch;
struct InResponseHolders;

// The large responses that one peer was granted and has not released. Their memory is this side's. At a
// server also the large requests that it has sent to a client over the reverse connection. While the call
// goes on, the client's handler may use the request, so it counts against the share of the host only. Once
// the call has ended without an answer, the request is treated as a response is.
// Thread:   on the poller.
// Lifetime: a part of its owner. It is destroyed when the fabric holds none of the connection's memory, and
//           what the peer held until then does not count any more.
class ResponseAccount final : public ListLink<InResponseHolders> {
 public:
  class Owner {
   public:
    virtual PeerHost peer_host() const = 0;
    // See fabric::QueuePair.
    virtual std::optional<uint64_t> answered_read_bytes() const = 0;
    // Counts again what each of the messages holds (Bytes::held). Returns the sum.
    virtual uint64_t CountHeld() = 0;
    // Ends the connection: others need the memory that its peer holds.
    virtual void EndForMemory() = 0;

   protected:
    ~Owner() = default;
  };

  // What one message takes.
  struct Bytes {
    uint64_t granted = 0;  // That the peer may READ, and has to release. 0 for a request whose call goes on.
    uint64_t held = 0;     // Bytes of the pool for this message alone. See OutgoingMessage::held_bytes().
  };

  ResponseAccount(ResponseWatch& watch, Owner& owner) : watch_(watch), owner_(owner) {}
  ~ResponseAccount();

  // ResourceExhausted: with `bytes` more the peer's host would hold more than its share.
  absl::Status MayGrant(const Bytes& bytes);
  void OnGranted(const Bytes& bytes);
  void OnReleased(const Bytes& bytes);

  // The sum of what is granted now.
  const Bytes& holds() const { return holds_; }
  // Bytes that were granted, and that the peer has released, ever.
  uint64_t released_bytes() const { return released_bytes_; }

 private:
  friend class ResponseWatch;

  ReadLedger::Host& Host();
  // What the application kept when a response was granted may be that response's alone by now.
  void CountHeldAgain();

  ResponseWatch& watch_;
  Owner& owner_;
  ReadLedger::Host* host_ = nullptr;  // Null before the first large response.
  Bytes holds_;
  uint64_t unread_bytes_ = 0;    // That the peer has not READ yet, of those that were granted.
  uint64_t released_bytes_ = 0;  // Ever.
  int64_t still_since_ns_ = 0;   // When it last moved, or began to hold some.
  uint64_t claimed_bytes_ = 0;   // The connection was ended to get these back.
  // At the last look of the watch, by its number.
  uint64_t look_ = 0;
  uint64_t granted_bytes_then_ = 0;
  uint64_t released_bytes_then_ = 0;
  uint64_t answered_bytes_then_ = 0;
};

// Ends peers that hoard responses while memory is short.
//
// A small request can ask for a large response, whose memory is held until the peer has READ and released it.
// A handler can send a client large requests, whose memory is held until the client has answered them, also
// after their deadlines. So:
//  - A host (PeerHost) holds at most a share of the memory that is free or its own, as it does for announced
//    messages. A response, or a request of a server, beyond that is refused, unless it is the host's only
//    one (ReadLedger::MayHoldResponse()). What it refers to and the application keeps does not count, as
//    long as the application keeps it; at each check it is counted again.
//  - Every ReadAdmission::kWatchInterval (WatchInterval) the connections that hold responses are checked.
//    While memory is short, one that hardly moves is ended: the connections of the host that holds most come
//    first, then the one that has not moved for longest.
//
// Memory is short if the pool has refused some since the last check, or a response was refused by its host's
// share, or announced messages of some poller have waited for all of that time, or receive rings wait.
// Without shortage no connection is ended.
//
// A peer moves by releasing responses, and by READs of bytes that it has not READ before, where the fabric
// sees them (TCP does). In an interval it has to move as many bytes as ReadAdmission requires of a message.
// Over verbs a peer that READs one large response looks the same as one that does nothing. It has more time
// there, in proportion to what it holds: see kUnseenBytesPerSecond.
//
// Thread: on the poller.
class ResponseWatch {
 public:
  // Peers are ended to get back at least this fraction of the pool: memory comes in slabs, so exactly the
  // bytes that were refused would seldom help.
  static constexpr uint64_t kPoolFraction = 8;
  // Over verbs a peer has an interval, and a second for so many bytes that it holds: the least that it gets
  // of an RDMA network which many share. In all kUnseenMax at most.
  static constexpr uint64_t kUnseenBytesPerSecond = 16 << 20;
  static constexpr absl::Duration kUnseenMax = absl::Seconds(15);

  // The time of a peer that holds `granted_bytes` and whose READs are not seen, where others have `at_least`.
  static absl::Duration UnseenTime(absl::Duration at_least, uint64_t granted_bytes) {
    const double seconds = static_cast<double>(granted_bytes) / kUnseenBytesPerSecond;
    return std::min(at_least + absl::Seconds(1) * seconds, kUnseenMax);
  }

  // `ledger`: that of the poller's buffer pool. `host_share`: PollerOptions::host_memory_share.
  ResponseWatch(PollerServices& poller, ReadLedger& ledger, ReadAdmission& reads, double host_share);

 private:
  friend class ResponseAccount;

  // `bytes` of `host` do not count any more, so announced messages may be admitted.
  void Release(ReadLedger::Host& host, uint64_t bytes);
  // Counts and records what each account holds, and comes back to it after an interval.
  void Look();
  void Watch();
  // Since the last look, in which `account` was. Updates what is left for its peer to READ.
  bool HardlyMoves(ResponseAccount& account) const;
  // False only where READs are not seen: see kUnseenBytesPerSecond.
  bool HasHadItsTime(const ResponseAccount& account) const;
  // What has to be freed, and is claimed from now on. 0: memory is not short.
  uint64_t ClaimMissing();
  uint64_t Refusals() const;

  PollerServices& poller_;
  ReadLedger& ledger_;
  ReadAdmission& reads_;
  const double host_share_;
  // The account whose peer has not moved for longest is first.
  IntrusiveList<ResponseAccount, InResponseHolders> holders_;
  uint64_t looks_ = 0;
  int64_t looked_ns_ = 0;
  uint64_t refusals_then_ = 0;
  Timer watch_timer_;  // While there are holders.
  WatchInterval interval_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SHARING_RESPONSE_WATCH_H_
