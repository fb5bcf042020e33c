#ifndef HAWSER_TRANSPORT_CONNECTION_ENDING_H_
#define HAWSER_TRANSPORT_CONNECTION_ENDING_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "hawser/base/violation.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/connection_observer.h"
#include "hawser/transport/connection/connection_parts.h"
#include "hawser/transport/connection/drain_watch.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/work_id.h"

namespace hawser::transport {

// How a connection ends: it drains or breaks, its calls are ended, its work requests are flushed, and its
// observer, the peer and the log are notified.
//
//   Drain() -> no exchange is left: CloseIfDrained() -+-> the queue pair disconnects -> Settle(): OnLost(),
//   Fail() -------------------------------------------+   and OnClosed() once all work requests are flushed
//
// Thread:   on the poller.
// Lifetime: part of its Connection.
class Ending {
 public:
  Ending(Port& port, ConnectionParts& parts, ConnectionObserver& observer);

  // See Connection. `awaits_first_message`: the peer dialed, and has sent nothing yet.
  void Drain(bool awaits_first_message);
  bool drains_when_ready() const { return drains_when_ready_; }
  void ExpectEnd() { end_is_expected_ = true; }
  void Close(const absl::Status& why);

  // An exchange has ended, perhaps the last.
  void OnExchangeEnded() {
    if (port_.state() == ConnectionState::State::kDraining) [[unlikely]]
      OnExchangeOfDrainEnded();
  }
  // The peer has sent its first message.
  void OnFirstMessage();
  // After the first bad completion of any kind the queue pair is unusable, even if it does not report an
  // error. Calls Port::Fail(), now or from FailIfFlushed().
  void OnBadCompletion(const WorkId& id, fabric::CompletionStatus status);
  // At the end of a turn, before kFlushing.
  void FailIfFlushed() {
    if (!seen_flushed_.ok()) [[unlikely]]
      FailAsFlushed();
  }
  // At the end of a turn. True: it has drained, and is in kFlushing.
  bool CloseIfDrained() {
    return port_.state() == ConnectionState::State::kDraining && CloseIfLastHasEnded();
  }
  // At the end of a turn in kFlushing.
  void Settle();

  // Before kFlushing: what Port::Fail() does with the parts that are here.
  void Fail(const absl::Status& why);

 private:
  using State = ConnectionState::State;
  using Event = ConnectionState::Event;

  void OnExchangeOfDrainEnded();
  void FailAsFlushed();
  void LookForCause();
  bool CloseIfLastHasEnded();
  void OnViolation(Violation violation);
  // While this side drains: a client without a call has kLeaves to leave, from the first time that it has
  // none.
  void AwaitLeave();
  void OnLeaveTimer();
  // In kFlushing: sets the timer for the flush, or for the cause of the loss.
  void AwaitFlush();
  void OnFlushTimer();
  // Sets loss_: the connection fails because of `why`.
  void NoteLoss(const absl::Status& why);
  void NotifyLost();
  void EndLandings();
  void CloseIfFlushed();

  Port& port_;
  ConnectionParts& parts_;
  ConnectionObserver& observer_;
  absl::Status seen_flushed_;     // Not OK: receives were flushed, and the cause is not known yet.
  bool closed_here_ = false;      // By Close(), not by a failure.
  bool end_is_expected_ = false;  // ExpectEnd().
  bool drains_when_ready_ = false;
  bool lost_reported_ = false;  // OnLost() was called.
  bool forced_ = false;         // QueuePair::ForceFlush() was called.
  std::string loss_;            // For the log: what was lost. Empty: there is nothing to log.
  Timer going_away_timer_;      // Drains, and waits for a first message before it says so.
  Timer leave_timer_;           // Drains, and waits for a client without a call to leave, or to be connected.
  Timer flush_timer_;           // In kFlushing.
  std::unique_ptr<DrainWatch> drain_watch_;  // Null: it has not drained. Most connections never do.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_ENDING_H_
