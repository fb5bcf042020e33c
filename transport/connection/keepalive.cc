#include "hawser/transport/connection/keepalive.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/sharing/watch_interval.h"

namespace hawser::transport {
namespace {

// How long the first request of a connection may stay unanswered before the first ping: see
// Keepalive::OnTimer().
constexpr absl::Duration kFirstAnswer = absl::Milliseconds(100);

// When to ping an idle connection: at `when_ns`, or up to a 64th of the interval later. Connections share
// these points in time, so a poller with thousands of idle connections wakes up 64 times an interval instead
// of thousands of times.
int64_t OnSharedPoint(int64_t when_ns, absl::Duration interval) {
  const int64_t step_ns = absl::ToInt64Nanoseconds(interval / 64);
  if (step_ns <= 0 || when_ns >= kNever - step_ns) return when_ns;
  return (when_ns + step_ns - 1) / step_ns * step_ns;
}

}  // namespace

Keepalive::Keepalive(Port& port, Control& control, const Inbounds& inbounds, Source& source)
    : port_(port), control_(control), inbounds_(inbounds), source_(source), timer_([this] { OnTimer(); }) {}

void Keepalive::Start(bool ping_early) {
  last_receive_ns_ = port_.poller().now_ns();
  const absl::Duration interval = port_.options().keepalive_interval;
  absl::Duration first = interval;
  // Infinite: no pings at all, this one included.
  if (ping_early) first = std::min(first, std::max(kFirstAnswer, first / 100));
  const int64_t first_ns = After(port_.poller().now_ns(), first);
  port_.poller().timers().Set(timer_, first < interval ? first_ns : OnSharedPoint(first_ns, interval));
}

void Keepalive::OnControlAck() {
  asked_ = false;
  port_.SetPeerIsBusy("");
  // The peer has answered a ping. The next one is due an interval from now.
  if (port_.carries_traffic() && control_.waiting_since_ns() == kNever && source_.is_idle() &&
      inbounds_.stands_still_since_ns() == kNever) {
    const absl::Duration interval = port_.options().keepalive_interval;
    port_.poller().timers().Set(timer_, OnSharedPoint(After(last_receive_ns_, interval), interval));
  }
}

int64_t Keepalive::SilentUntilNs() const {
  // An early ping does not shorten the peer's time, unless the peer has never sent anything: such a peer uses
  // our memory for nothing. A control request that only advertises credits does not shorten it either,
  // because this side may send one at any time, even just after the peer's last message.
  const bool at_once =
      (source_.has_received() && !control_.only_advertises()) || source_.awaits_first_message();
  const int64_t last_ns =
      at_once ? last_receive_ns_ : After(last_receive_ns_, port_.options().keepalive_interval);
  return After(std::max({last_ns, control_.waiting_since_ns(), quiet_since_ns_}),
               port_.options().keepalive_timeout);
}

int64_t Keepalive::AskAtNs() const {
  const int64_t end_ns = SilentUntilNs();
  return end_ns == kNever ? kNever : end_ns - absl::ToInt64Nanoseconds(port_.options().keepalive_timeout / 2);
}

void Keepalive::PeerIsBusy(absl::string_view how) {
  port_.poller().AssertHeld();
  if (!port_.carries_traffic() || control_.waiting_since_ns() == kNever)
    return;  // The peer has answered meanwhile.
  port_.SetPeerIsBusy(absl::StrCat("; ", how));
  busy_since_ns_ = std::min(busy_since_ns_, port_.poller().now_ns());
  if (port_.poller().now_ns() >= After(busy_since_ns_, port_.options().busy_timeout)) {
    return port_.Fail(
        absl::StatusCode::kUnavailable,
        absl::StrCat("has not answered for ", absl::FormatDuration(port_.options().busy_timeout),
                     " (ConnectionOptions::busy_timeout)", port_.peer_is_busy()));
  }
  quiet_since_ns_ = After(port_.poller().now_ns(), port_.options().keepalive_timeout / 2);
  asked_ = false;
  OnTimer();
}

// If the peer of a new connection has sent nothing, and the first request is in flight, the client pings
// once, long before the interval is over. A device may hold back a message that arrives during the handshake
// until another one arrives (Linux's siw does, while the peer's thread is in rdma_accept()). Over other
// devices this costs one small message on a connection whose first call takes long. A server, too, pings a
// client that has sent nothing by then: one that does not answer is no Hawser client.
void Keepalive::OnTimer() {
  const int64_t now_ns = port_.poller().now_ns();
  // If the timer runs late, a callback has held this poller, or the process was stopped. The peer's messages
  // may have arrived meanwhile, so the peer gets a quarter of the time more; not without end, because others
  // can hold the poller again and again by what they call. Its pings buy no time for a READ.
  const int64_t read_ns = inbounds_.stands_still_since_ns();
  const bool owes = read_ns != kNever || control_.waiting_since_ns() != kNever;
  if (!owes || std::exchange(late_read_ns_, read_ns) != read_ns) late_ = 0;
  const absl::Duration some_time = port_.options().keepalive_timeout / 4;
  const bool late = !timer_.is_set() && absl::Nanoseconds(now_ns - timer_.when_ns()) > some_time;
  if (late && late_ < WatchInterval::kNotCountedMax) {
    ++late_;
    quiet_since_ns_ = std::max(quiet_since_ns_, now_ns - absl::ToInt64Nanoseconds(3 * some_time));
  }
  source_.OnInterval();
  int64_t next_ns;
  if (control_.waiting_since_ns() != kNever) {
    next_ns = SilentUntilNs();
    if (next_ns <= now_ns && !asked_) {
      // The control request was sent before the timer was set, so OnPeerSilent() has not been called yet.
      quiet_since_ns_ =
          std::max(quiet_since_ns_, now_ns - absl::ToInt64Nanoseconds(port_.options().keepalive_timeout / 2));
      next_ns = SilentUntilNs();
    }
    if (next_ns <= now_ns) {
      return port_.Fail(
          absl::StatusCode::kUnavailable,
          absl::StrCat(
              "has not answered a ping for ", absl::FormatDuration(port_.options().keepalive_timeout),
              "; its process is stopped, a handler or callback there holds its poller, its host is down, or "
              "the network between is cut"));
    }
    if (const int64_t ask_ns = AskAtNs(); ask_ns > now_ns) {
      next_ns = ask_ns;
      asked_ = false;
    } else if (!std::exchange(asked_, true)) {
      source_.OnPeerSilent(absl::Nanoseconds(next_ns - now_ns));
      if (!port_.carries_traffic()) return;
    }
  } else {
    asked_ = false;
    busy_since_ns_ = kNever;
    next_ns = After(last_receive_ns_, port_.options().keepalive_interval);
    if (next_ns <= now_ns || source_.waits_for_first_answer() || source_.awaits_first_message()) {
      control_.Ping();
      if (!port_.carries_traffic()) return;
      next_ns = AskAtNs();
    } else {
      next_ns = OnSharedPoint(next_ns, port_.options().keepalive_interval);
    }
  }
  if (const int64_t since_ns = inbounds_.stands_still_since_ns(); since_ns != kNever) {
    const absl::Duration limit = port_.options().keepalive_interval + port_.options().keepalive_timeout;
    const int64_t end_ns = After(std::max(since_ns, quiet_since_ns_), limit);
    if (end_ns <= now_ns) {
      return port_.Fail(absl::StatusCode::kUnavailable,
                        absl::StrCat("answers, but ", inbounds_.DescribeOldest(), " has not completed for ",
                                     absl::FormatDuration(limit),
                                     ": a device, here or there, or its driver does not do its work"));
    }
    next_ns = std::min(next_ns, end_ns);
  }
  port_.poller().timers().Set(timer_, next_ns);
}

}  // namespace hawser::transport
