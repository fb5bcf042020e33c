#ifndef HAWSER_TRANSPORT_CONNECTION_DRAIN_WATCH_H_
#define HAWSER_TRANSPORT_CONNECTION_DRAIN_WATCH_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/connection_parts.h"
#include "hawser/transport/connection/port.h"

namespace hawser::transport {

// Ends a connection that drains, at the side that answers, when all that is left waits for the peer and the
// peer stands still: it has large responses that it does not READ or release, does not answer the READs of a
// large request that is refused, or does not acknowledge an error behind which others wait
// (RequestHandler::answers_behind_peer()). Otherwise such a peer would hold up the end of a server for as
// long as it answers pings.
//
// A peer moves by releasing a response, by answering a READ, by acknowledging such an error, and, where the
// fabric sees it (fabric::QueuePair::progress(), TCP does), by each byte of a response or of the answer to a
// READ that arrives, or of what was sent before these. What it sends besides is no move: requests and pings
// buy no time. Nor are bytes that it READs once more: those of its READs count until they are as many as it
// was granted. One that moves keeps its connection, however slow it is; the server's deadline bounds that.
// The time in which a handler of this side runs, or an error finds no memory here, is not the peer's, nor is
// the time in which the poller is held, for the first times that it is.
//
// It looks only while the connection drains, so it costs a call nothing.
// Thread:   on the poller.
// Lifetime: part of its Connection, from the time that this drains.
class DrainWatch {
 public:
  // How long a peer may stand still. In this time a segment that TCP has lost can be sent again three times
  // (after 0.2, 0.4 and 0.8 s), and with verbs a NIC gives up on a peer that is gone (0.5 s). It is four
  // times what a client without a call has to leave, since an answer is lost to the caller here. Over verbs a
  // peer that holds responses has more time in proportion to them: ResponseWatch::UnseenTime().
  static constexpr absl::Duration kStill = absl::Seconds(2);

  // The connection drains, and answers requests.
  DrainWatch(Port& port, ConnectionParts& parts);

  // Inside Port::Fail(), and later: this is why the connection has ended.
  bool has_ended_it() const { return has_ended_it_; }
  // The connection ends.
  void Stop() { port_.poller().timers().Cancel(timer_); }

 private:
  void Look();
  // Since the last look. True for what this side has granted, too: the peer's time for it begins.
  bool HasMoved();
  // See RequestHandler. 0 if nothing is posted: this side has no memory for the receives that the peer's
  // answer needs.
  uint32_t AnswersBehindPeer() const;
  absl::Duration Time() const;
  std::string DescribeWhatIsLeft() const;

  Port& port_;
  ConnectionParts& parts_;
  int64_t still_since_ns_;
  // At the first look. READs count while no more bytes than these and what was granted since were READ.
  uint64_t read_before_bytes_ = 0;      // Ever.
  uint64_t released_before_bytes_ = 0;  // Ever.
  // How often an error that it acknowledges still gives it time: as often as an honest peer may have requests
  // in flight when the drain begins.
  uint32_t acknowledgements_left_;
  // At the last look.
  uint32_t behind_peer_ = 0;
  uint64_t granted_bytes_ = 0;     // Ever.
  uint64_t released_bytes_ = 0;    // Ever.
  int64_t read_ns_ = kNever;       // Inbounds::stands_still_since_ns().
  uint64_t arrived_ = 0;           // fabric::QueuePair::Progress.
  int64_t sent_most_ = INT64_MIN;  // Likewise, the most of all looks.
  bool has_ended_it_ = false;
  uint8_t held_ = 0;  // How often the poller was held while the peer stood still.
  Timer timer_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_DRAIN_WATCH_H_
