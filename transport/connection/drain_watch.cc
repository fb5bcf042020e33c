#include "hawser/transport/connection/drain_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/sharing/response_watch.h"

namespace hawser::transport {
namespace {

// An eighth of DrainWatch::kStill: a peer is ended so much later at most.
constexpr absl::Duration kInterval = absl::Milliseconds(250);
// How often the time of a peer begins anew because the poller was held. Other connections may call slow
// handlers of another server of the process without end.
constexpr uint8_t kHeldMax = 16;

}  // namespace

DrainWatch::DrainWatch(Port& port, ConnectionParts& parts)
    : port_(port), parts_(parts), still_since_ns_(port.poller().now_ns()), timer_([this] { Look(); }) {
  HasMoved();
  port_.poller().timers().Set(timer_, After(still_since_ns_, kInterval));
}

bool DrainWatch::HasMoved() {
  const ResponseAccount& responses = parts_.outbounds.responses();
  const uint64_t released_bytes = responses.released_bytes();
  const uint64_t granted_bytes = released_bytes + responses.holds().granted;
  const int64_t read_ns = parts_.inbounds.stands_still_since_ns();
  const fabric::QueuePair::Progress progress = port_.queue_pair().progress();
  const bool moved = released_bytes != released_bytes_ || granted_bytes != granted_bytes_ ||
                     read_ns != read_ns_ || progress.arrived != arrived_ || progress.sent > sent_most_;
  released_bytes_ = released_bytes;
  granted_bytes_ = granted_bytes;
  read_ns_ = read_ns;
  arrived_ = progress.arrived;
  sent_most_ = std::max(sent_most_, progress.sent);
  return moved;
}

absl::Duration DrainWatch::Time() const {
  if (port_.queue_pair().answered_read_bytes().has_value()) return kStill;
  return ResponseWatch::UnseenTime(kStill, parts_.outbounds.responses().holds().granted);
}

std::string DrainWatch::DescribeWhatIsLeft() const {
  const uint32_t granted = parts_.responder->granted();
  const uint32_t stopped = parts_.responder->in_flight() - granted;
  std::string text;
  if (granted != 0) {
    absl::StrAppend(&text, " has not READ and released ", granted, " large responses of ",
                    parts_.outbounds.responses().holds().granted, " bytes");
  }
  if (stopped != 0) {
    absl::StrAppend(&text, granted != 0 ? ", and" : "", " has not answered the READs of ", stopped,
                    " large requests");
  }
  return text;
}

void DrainWatch::Look() {
  Poller& poller = port_.poller();
  const int64_t now_ns = poller.now_ns();
  const bool was_held = now_ns >= After(timer_.when_ns(), kInterval);
  // HasMoved() first: it has to see each interval. Poller::behind() does not count: a peer that sends without
  // end could have it true for ever, and each connection has its turn long before kStill is over.
  if (HasMoved() || !parts_.responder->waits_only_for_peer()) {
    still_since_ns_ = now_ns;
    held_ = 0;
  } else if (was_held && held_ < kHeldMax) {
    still_since_ns_ = now_ns;
    ++held_;
  }
  const absl::Duration time = Time();
  if (now_ns >= After(still_since_ns_, time)) {
    poller.violations().CountStalled();
    has_ended_it_ = true;
    return port_.Fail(absl::StatusCode::kUnavailable,
                      absl::StrCat(DescribeWhatIsLeft().substr(1), ", and has not gone on with that for ",
                                   absl::FormatDuration(time), ", while this side drains"));
  }
  poller.timers().Set(timer_, After(now_ns, kInterval));
}

}  // namespace hawser::transport
