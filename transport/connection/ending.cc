#include "hawser/transport/connection/ending.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/transport/log/peer_log.h"

namespace hawser::transport {
namespace {

// How long a queue pair may take to flush. A NIC takes microseconds, a busy software device milliseconds. A
// stuck device or driver never flushes; then the poller destroys the queue pair, which ends the device's use
// of our memory. The time is long, because destroying the queue pair of a slow driver may block this thread.
constexpr absl::Duration kFlushTimeout = absl::Seconds(5);

// The same bound where the fabric completes everything as soon as the device has released it, and nothing
// here waits for that (QueuePair::ForceFlush()). That takes long if the device is busy with the ends of many
// others. A device that is stuck never releases it.
constexpr absl::Duration kForcedFlushTimeout = absl::Seconds(30);

// How long the report of a loss waits for its cause, if so far only receives were flushed.
constexpr absl::Duration kCauseTimeout = absl::Milliseconds(20);

// How long a server that drains waits for the first message of a client that it has accepted, before it sends
// that it is going away.
constexpr absl::Duration kFirstMessage = absl::Milliseconds(100);

// How long a server that drains waits for a client without a call to leave, and for one that it has accepted
// to be connected. A client that is stopped, or cut off, does neither, and would hold up the end of the
// server until it is taken for dead. For those that have calls: DrainWatch::kStill.
constexpr absl::Duration kLeaves = absl::Milliseconds(500);

}  // namespace

Ending::Ending(Port& port, ConnectionParts& parts, ConnectionObserver& observer)
    : port_(port),
      parts_(parts),
      observer_(observer),
      going_away_timer_([this] { parts_.control.GoingAway(); }),
      leave_timer_([this] { OnLeaveTimer(); }),
      flush_timer_([this] { OnFlushTimer(); }) {}

// ---- Draining

void Ending::Drain(bool awaits_first_message) {
  if (port_.state() == State::kConnecting) {
    // For the accepted client the connection may already be established, and its first requests in flight.
    drains_when_ready_ = port_.accepted() && parts_.responder != nullptr;
    if (!drains_when_ready_) return Close(absl::CancelledError("closed by this side"));
    return port_.poller().timers().Set(leave_timer_, After(port_.poller().now_ns(), kLeaves));
  }
  if (port_.state() == State::kDraining) return;
  port_.Move(Event::kDrainCalled);
  if (port_.state() != State::kDraining) return;
  if (parts_.responder != nullptr) {
    // This side disconnects only after the last answers have arrived, so from now on it signals each send.
    parts_.send_queue.SignalAll();
    if (awaits_first_message) {
      // On iWARP the first SEND is the client's (RFC 5044, section 7.1): its kernel may still be handling
      // the handshake, and Linux's siw then ends the connection.
      port_.poller().timers().Set(going_away_timer_, After(port_.poller().now_ns(), kFirstMessage));
    } else {
      parts_.control.GoingAway();
    }
    port_.poller().timers().Cancel(leave_timer_);  // Of the time in which it was connecting.
    parts_.responder->StopReading();
    if (!port_.carries_traffic()) return;
    drain_watch_ = std::make_unique<DrainWatch>(port_, parts_);
    AwaitLeave();
  }
  port_.FlushLater();
}

void Ending::AwaitLeave() {
  if (!port_.carries_traffic() || parts_.responder == nullptr || parts_.exchanges_in_flight() != 0) return;
  // Requests that come whole meanwhile are refused at once, and give the peer no more time.
  if (leave_timer_.is_set()) return;
  port_.poller().timers().Set(leave_timer_, After(port_.poller().now_ns(), kLeaves));
}

void Ending::OnLeaveTimer() {
  if (parts_.exchanges_in_flight() != 0) return;  // Set again after the last of them.
  Close(absl::CancelledError(absl::StrCat("closed by this side, which drains: the peer",
                                          port_.state() == State::kConnecting
                                              ? " did not connect within "
                                              : ", which has no call, did not leave within ",
                                          absl::FormatDuration(kLeaves))));
}

void Ending::OnExchangeOfDrainEnded() {
  port_.FlushLater();
  AwaitLeave();
}

void Ending::OnFirstMessage() {
  if (!going_away_timer_.is_set()) return;
  port_.poller().timers().Cancel(going_away_timer_);
  parts_.control.GoingAway();
}

bool Ending::CloseIfLastHasEnded() {
  if (parts_.exchanges_in_flight() != 0) return false;
  if (parts_.responder != nullptr &&
      (going_away_timer_.is_set() || parts_.send_queue.has_queued() || parts_.send_queue.outstanding() != 0 ||
       parts_.control.waiting_since_ns() != kNever)) {
    return false;
  }
  port_.Move(Event::kExchangesDone);
  port_.why_closed_ = absl::CancelledError("closed by this side after its last call");
  port_.poller().timers().Cancel(leave_timer_);
  if (drain_watch_ != nullptr) drain_watch_->Stop();
  parts_.keepalive.Stop();
  parts_.receive_ring.StopWaiting();
  port_.queue_pair_->Disconnect();
  AwaitFlush();
  parts_.inbounds.Fail();
  if (parts_.requester != nullptr)
    parts_.requester->FailAll(port_.why_closed_);  // No call is left. This ends its timers.
  if (parts_.responder != nullptr) parts_.responder->FailAll(port_.why_closed_);
  return true;
}

// ---- Failing

void Ending::Close(const absl::Status& why) {
  if (port_.state() < State::kFlushing) closed_here_ = true;
  port_.Fail(why);
}

void Ending::Fail(const absl::Status& why) {
  // Copies code and text without the payload.
  port_.why_closed_ = absl::Status(why.code(), why.message());
  if (why != seen_flushed_) seen_flushed_ = absl::OkStatus();
  NoteLoss(why);
  if (LogLevel() <= LogSeverity::kDebug) [[unlikely]]
    PeerLog::Process().Debug(absl::StrCat(port_.Name(), " ends: ", absl::string_view(why.message())));
  port_.Move(Event::kFailed);
  for (Timer* timer : {&going_away_timer_, &leave_timer_}) {
    port_.poller().timers().Cancel(*timer);
  }
  if (drain_watch_ != nullptr) drain_watch_->Stop();
  parts_.keepalive.Stop();
  parts_.receive_ring.StopWaiting();
  const std::optional<Violation> violation = ViolationOf(why);
  if (violation.has_value()) OnViolation(*violation);
  // Tells the peer its violation, the resource that this side lacks, or that it has stood still.
  const bool stalled = drain_watch_ != nullptr && drain_watch_->has_ended_it();
  if (violation.has_value() || absl::IsResourceExhausted(why) || stalled) {
    port_.queue_pair_->DisconnectBecause(port_.why_closed_.message());
  } else {
    port_.queue_pair_->Disconnect();
  }
  AwaitFlush();
  parts_.inbounds.Fail();
  parts_.send_queue.DropQueued();
  port_.FlushLater();
  // Calls need to know one thing: whether this process ended them, or whether they may be tried again.
  const absl::Status for_calls = why.code() == absl::StatusCode::kCancelled
                                     ? why
                                     : absl::UnavailableError(absl::StrCat("the connection to ", port_.peer_,
                                                                           " was lost: ", why.message()));
  if (parts_.requester != nullptr) parts_.requester->FailAll(for_calls);
  if (parts_.responder != nullptr) parts_.responder->FailAll(for_calls);
}

void Ending::OnViolation(Violation violation) {
  if (!port_.accepted()) return;
  port_.poller().violations().Record(
      violation, port_.peer_address_,
      absl::StrCat(port_.why_closed_.message(), "; connection ", port_.number(), " is closed"));
}

void Ending::OnBadCompletion(const WorkId& id, fabric::CompletionStatus status) {
  absl::Status why = absl::UnavailableError(
      absl::StrCat("peer ", port_.peer_, ": ",
                   id.kind == WorkId::kReceive      ? "a receive"
                   : id.kind == WorkId::kRevocation ? "the revocation of a grant"
                   : id.kind == WorkId::kTakenPush  ? "a push"
                                                    : parts_.send_queue.Describe(id.number),
                   " failed: ", fabric::Describe(status)));
  if (id.kind == WorkId::kReceive && status == fabric::CompletionStatus::kLocalError) {
    SetViolation(why, Violation::kLimit);  // Longer than the receive.
  } else if (id.kind == WorkId::kSendQueue && status == fabric::CompletionStatus::kRemoteAccessError) {
    SetViolation(why, Violation::kMemoryAccess);  // The peer's table names memory that it did not grant.
  }
  // A taken push is like a READ: the owner of its message is notified now.
  if (id.kind != WorkId::kSendQueue && id.kind != WorkId::kTakenPush &&
      status == fabric::CompletionStatus::kFlushed) {
    // The cause may still arrive from the send queue, because the order across queues is undefined. If it
    // does not arrive in this turn, Flush() fails the connection at its end.
    if (port_.state() < State::kFlushing && seen_flushed_.ok()) seen_flushed_ = why;
    return;
  }
  // The cause arrives in a later turn than the flush. The calls have failed without it, but the observer gets
  // it.
  if (port_.state() == State::kFlushing && !seen_flushed_.ok() &&
      status != fabric::CompletionStatus::kFlushed) {
    port_.why_closed_ = absl::Status(why.code(), why.message());
    seen_flushed_ = absl::OkStatus();
    AwaitFlush();  // For as long as any flush may take.
    if (const std::optional<Violation> violation = ViolationOf(why)) OnViolation(*violation);
  }
  port_.Fail(why);
}

// While connecting, this waits for OnConnectFailed(), which names the reason; siw flushes before it.
void Ending::FailAsFlushed() {
  if (port_.state() == State::kConnecting) return;
  const absl::Status cause = port_.queue_pair_->why_ended();
  port_.Fail(cause.ok() ? seen_flushed_ : cause);
}

// In a later turn than the flush, as in OnBadCompletion(), but it has no completion.
void Ending::LookForCause() {
  if (port_.queue_pair_ == nullptr) return;
  const absl::Status cause = port_.queue_pair_->why_ended();
  if (cause.ok()) return;
  port_.why_closed_ = absl::Status(cause.code(), cause.message());
  seen_flushed_ = absl::OkStatus();
  AwaitFlush();
  if (const std::optional<Violation> violation = ViolationOf(cause)) OnViolation(*violation);
}

// ---- Flushing

void Ending::AwaitFlush() {
  const absl::Duration time = seen_flushed_.ok() ? kFlushTimeout : kCauseTimeout;
  port_.poller().timers().Set(flush_timer_, After(port_.poller().now_ns(), time));
}

void Ending::OnFlushTimer() {
  if (!seen_flushed_.ok()) {  // The cause has not arrived in time.
    seen_flushed_ = absl::OkStatus();
    AwaitFlush();
  } else if (!std::exchange(forced_, true) && port_.queue_pair_->ForceFlush()) {
    NotifyLost();
    port_.poller().timers().Set(flush_timer_, After(port_.poller().now_ns(), kForcedFlushTimeout));
  } else {
    // From here on no posted work request completes, and the fabric uses none of our memory.
    port_.queue_pair_.reset();
    parts_.send_queue.Abandon();
    parts_.receive_ring.Abandon();
    parts_.inbounds.Abandon();
  }
  port_.FlushLater();
}

void Ending::Settle() {
  if (!seen_flushed_.ok()) [[unlikely]]
    LookForCause();
  if (seen_flushed_.ok()) NotifyLost();
  CloseIfFlushed();
}

// Not a loss: a client disconnects after its last call, or a server disconnects after it has sent "going
// away". A protocol violation has a line of its own.
void Ending::NoteLoss(const absl::Status& why) {
  if (closed_here_ || !port_.carries_traffic() || (port_.accepted() && ViolationOf(why).has_value())) return;
  // A client that leaves need not have released the answers that it READ, nor have answered a ping, nor what
  // the server pushes to it just then: that call ends with Unavailable.
  const bool peer_left = fabric::IsPeersEnd(why);
  uint32_t calls = parts_.exchanges_in_flight();
  if (peer_left && parts_.responder != nullptr) calls = parts_.responder->unanswered();
  if (peer_left && parts_.responder == nullptr && port_.accepted()) calls = 0;
  const bool is_missed = !port_.accepted() && port_.state() == State::kReady && !end_is_expected_;
  const bool is_asked =
      !peer_left && parts_.control.waiting_since_ns() != kNever && !parts_.control.only_advertises();
  if (calls == 0 && !is_asked && !is_missed) return;
  loss_ = absl::StrCat(port_.Name(), " was lost with ", calls, " calls under way");
}

void Ending::NotifyLost() {
  if (std::exchange(lost_reported_, true)) return;
  if (!loss_.empty()) {
    const std::string line = absl::StrCat(loss_, ": ", absl::string_view(port_.why_closed_.message()));
    PeerLog::Process().Line(LogSeverity::kWarning, port_.peer_address_, line);
  }
  observer_.OnLost(port_.why_closed_);
}

// Calls whose landing the fabric could write to end here, and with the queue pair: where a device did not
// take back what a READ was given to write to, it is destroyed first (QueuePair::CloseSink()).
void Ending::EndLandings() {
  if (parts_.requester == nullptr || !parts_.requester->has_landings()) return;
  port_.queue_pair_.reset();
  const Poller::NoCallOut wait(port_.poller());
  parts_.requester->EndLandings();
}

void Ending::CloseIfFlushed() {
  if (parts_.send_queue.outstanding() != 0 || parts_.receive_ring.posted() != 0 ||
      parts_.inbounds.has_taken() || (parts_.outbounds.revokes() && port_.queue_pair_ != nullptr)) {
    return;
  }
  port_.Move(Event::kFlushed);
  port_.poller().timers().Cancel(flush_timer_);
  NotifyLost();
  EndLandings();
  parts_.outbounds.OnFabricReleased();
  observer_.OnClosed(port_.why_closed_);
  port_.poller().MarkClosed(&port_);
}

}  // namespace hawser::transport
