#ifndef HAWSER_TRANSPORT_SHARING_READ_BUDGET_H_
#define HAWSER_TRANSPORT_SHARING_READ_BUDGET_H_

#include <cstdint>

#include "hawser/base/intrusive_list.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/sharing/poller_services.h"

namespace hawser::transport {

class ReadBudget;
struct InReadLine;
struct InReadOrder;

// The share that one connection has of its poller's ReadBudget.
// Lifetime: a part of its owner.
class ReadShare final : public ListLink<InReadLine>, public ListLink<InReadOrder> {
 public:
  class Owner {
   public:
    // It is the turn of this owner, which takes what it needs.
    virtual void Pump() = 0;

   protected:
    ~Owner() = default;
  };

  ReadShare(ReadBudget& budget, Owner& owner) : budget_(budget), owner_(owner) {}
  ~ReadShare();

  // READs that the connection may have outstanding while its peer answers them in time.
  void SetDepth(uint32_t depth) { depth_ = depth; }

  // For one more READ. False: not now; the owner is pumped when it may be, or one of its own READs completes
  // before that.
  bool Take(uint64_t bytes);
  // A READ has completed, or was not posted. Does not pump the owner.
  void Return(uint64_t bytes);

  uint32_t outstanding() const { return outstanding_; }
  // It waits for other connections, not for its peer.
  bool waits_in_line() const { return outstanding_ == 0 && ListLink<InReadLine>::linked(); }

 private:
  friend class ReadBudget;

  ReadBudget& budget_;
  Owner& owner_;
  uint32_t depth_ = 1;
  uint32_t window_ = 1;  // READs that it may have outstanding now.
  uint32_t outstanding_ = 0;
  uint64_t counted_bytes_ = 0;    // Outstanding, and taken from the budget.
  uint64_t uncounted_bytes_ = 0;  // Outstanding for longer, and already returned to the budget.
  int64_t moved_ns_ = 0;          // When a READ last completed, or the first of them was taken.
  bool moves_ = false;            // The last READ completed in time.
};

// The READ bytes that one poller may have outstanding over all its connections, so that one bulk caller
// cannot starve small calls. Connections that find it used up wait in line and take turns, and no other
// passes them: short READs do not starve a long one.
//
// A connection whose READs do not complete loses its share as soon as another one waits for it. A posted READ
// cannot be revoked, so its READs stay posted and do not count any more. Until one completes in time, the
// connection has one READ at a time, outside of the budget. Then its share grows again, by one READ for each
// that completes. "In time" is eight times the recent duration of this poller's READs, and at least
// kStallMin.
//
// Thread: on the poller.
class ReadBudget {
 public:
  // Bounds of the time without any completed READ after which a connection is stalled. The least: a process
  // that lost its core for one time slice is no stalled peer. The most: peers that make every READ late must
  // not stretch the measure without bound.
  static constexpr absl::Duration kStallMin = absl::Milliseconds(20);
  static constexpr absl::Duration kStallMax = absl::Milliseconds(500);

  ReadBudget(uint64_t bytes_max, PollerServices& poller);

  // READ bytes outstanding of the connections that move.
  uint64_t taken_bytes() const { return taken_bytes_; }
  uint64_t bytes_max() const { return bytes_max_; }
  // Connections that wait for their turn.
  size_t waiting() const { return line_.size(); }

 private:
  friend class ReadShare;

  bool Fits(uint64_t bytes) const { return taken_bytes_ == 0 || taken_bytes_ + bytes <= bytes_max_; }
  int64_t stall_ns() const;
  // Stops counting the READs of stalled connections. True: there were some.
  bool ReclaimStalled();
  void ServeLine();
  void SetTimer();
  void OnTimer();

  const uint64_t bytes_max_;
  PollerServices& poller_;
  uint64_t taken_bytes_ = 0;
  IntrusiveList<ReadShare, InReadLine> line_;  // The shares that wait, in order.
  // The shares with counted READs. The one whose READs moved the longest ago comes first.
  IntrusiveList<ReadShare, InReadOrder> moving_;
  ReadShare* served_ = nullptr;  // The first in line, while ServeLine() serves it.
  bool served_took_ = false;     // It has had some,
  bool served_short_ = false;    // and has asked for more than there is.
  int64_t read_ns_ = 0;          // A moving average of the time between two completions of a connection.
  Timer timer_;                  // While some wait: when the first of moving_ is stalled.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SHARING_READ_BUDGET_H_
