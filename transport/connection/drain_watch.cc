#include "hawser/transport/connection/drain_watch.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/sharing/response_watch.h"
#include "hawser/transport/sharing/watch_interval.h"

namespace hawser::transport {
namespace {

// An eighth of DrainWatch::kStill: a peer is ended so much later at most.
constexpr absl::Duration kInterval = absl::Milliseconds(250);

}  // namespace

DrainWatch::DrainWatch(Port& port, ConnectionParts& parts)
    : port_(port),
      parts_(parts),
      still_since_ns_(port.poller().now_ns()),
      read_before_bytes_(port.queue_pair().answered_read_bytes().value_or(0)),
      released_before_bytes_(parts.outbounds.responses().released_bytes()),
      acknowledgements_left_(port.agreed().slots),
      timer_([this] { Look(); }) {
  HasMoved();
  port_.poller().timers().Set(timer_, After(still_since_ns_, kInterval));
}

uint32_t DrainWatch::AnswersBehindPeer() const {
  return parts_.send_queue.outstanding() != 0 ? parts_.responder->answers_behind_peer() : 0;
}

bool DrainWatch::HasMoved() {
  const ResponseAccount& responses = parts_.outbounds.responses();
  const uint64_t released_bytes = responses.released_bytes();
  const uint64_t granted_bytes = released_bytes + responses.holds().granted;
  const int64_t read_ns = parts_.inbounds.stands_still_since_ns();
  const fabric::QueuePair::Progress progress = port_.queue_pair().progress();
  const uint64_t read_bytes = port_.queue_pair().answered_read_bytes().value_or(0) - read_before_bytes_;
  const bool reads_anew = read_bytes <= granted_bytes - released_before_bytes_;
  const uint32_t behind_peer = AnswersBehindPeer();
  const bool acknowledged = behind_peer < behind_peer_ && acknowledgements_left_ != 0;
  if (acknowledged) --acknowledgements_left_;
  const bool moved = released_bytes != released_bytes_ || granted_bytes != granted_bytes_ ||
                     read_ns != read_ns_ || progress.arrived != arrived_ ||
                     (reads_anew && progress.sent > sent_most_) || acknowledged;
  released_bytes_ = released_bytes;
  granted_bytes_ = granted_bytes;
  read_ns_ = read_ns;
  arrived_ = progress.arrived;
  sent_most_ = std::max(sent_most_, progress.sent);
  behind_peer_ = behind_peer;
  return moved;
}

absl::Duration DrainWatch::Time() const {
  if (port_.queue_pair().answered_read_bytes().has_value()) return kStill;
  return ResponseWatch::UnseenTime(kStill, parts_.outbounds.responses().holds().granted);
}

std::string DrainWatch::DescribeWhatIsLeft() const {
  const uint32_t granted = parts_.responder->granted();
  const uint32_t behind_peer = AnswersBehindPeer();
  const uint32_t stopped = parts_.responder->in_flight() - granted - behind_peer;
  std::vector<std::string> left;
  if (granted != 0) {
    left.push_back(absl::StrCat("has not READ and released ", granted, " large responses of ",
                                parts_.outbounds.responses().holds().granted, " bytes"));
  }
  if (stopped != 0) {
    left.push_back(absl::StrCat("has not answered the READs of ", stopped, " large requests"));
  }
  if (behind_peer != 0) {
    left.push_back(
        absl::StrCat("has not acknowledged an error behind which ", behind_peer, " others wait for memory"));
  }
  return absl::StrJoin(left, ", and ");
}

void DrainWatch::Look() {
  Poller& poller = port_.poller();
  const int64_t now_ns = poller.now_ns();
  const bool was_held = now_ns >= After(timer_.when_ns(), kInterval);
  // HasMoved() first: it has to see each interval. Poller::behind() does not count: a peer that sends without
  // end could have it true for ever, and each connection has its turn long before kStill is over.
  const bool moved = HasMoved();
  if (moved || !parts_.responder->waits_only_for_peer(behind_peer_)) {
    still_since_ns_ = now_ns;
    held_ = 0;
  } else if (was_held && held_ < WatchInterval::kNotCountedMax) {
    // Not without end: other connections may call slow handlers of another server of the process.
    still_since_ns_ = now_ns;
    ++held_;
  }
  const absl::Duration time = Time();
  if (now_ns >= After(still_since_ns_, time)) {
    poller.violations().CountStalled();
    has_ended_it_ = true;
    return port_.Fail(absl::StatusCode::kUnavailable,
                      absl::StrCat(DescribeWhatIsLeft(), ", and has not gone on with that for ",
                                   absl::FormatDuration(time), ", while this side drains"));
  }
  poller.timers().Set(timer_, After(now_ns, kInterval));
}

}  // namespace hawser::transport
