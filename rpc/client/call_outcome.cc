#include "hawser/rpc/client/call_outcome.h"

#include <optional>

#include "absl/time/time.h"
#include "hawser/rpc/status.h"
#include "hawser/transport/poller/called_out.h"

namespace hawser::internal {

absl::Status CallOutcome::Wait(transport::Poller& poller, const CallTimeout& timeout, const char* method,
                               const std::string& peer_address) {
  const auto whose = [&] { return absl::StrCat("a call of ", method, " to ", peer_address); };
  done_.Reset();
  if (Move(Handover::Event::kWait, whose) != Handover::State::kNeither) return absl::OkStatus();
  const auto deadline_ns = [&] { return timeout.WaitersDeadlineNs(poller.environment().NowNs()); };
  const auto soon_ns = [&] { return CallTimeout::LittleAfter(poller.environment().NowNs()); };
  if (poller.WaitFor(done_, deadline_ns)) return absl::OkStatus();
  std::optional<transport::CalledOut::Call> holder;
  do {
    holder = poller.called_out().Now();
    if (holder.has_value()) break;
    // The poller was held, and runs again.
  } while (!poller.WaitFor(done_, soon_ns));
  if (!holder.has_value()) return absl::OkStatus();
  if (Move(Handover::Event::kGiveUp, whose) == Handover::State::kResult) {
    poller.WaitFor(done_);  // The result is there, and the poller is about to notify this thread.
    return absl::OkStatus();
  }
  const absl::Duration held = absl::Nanoseconds(poller.environment().NowNs() - holder->since_ns);
  return CallError(absl::StatusCode::kDeadlineExceeded, method, peer_address,
                   absl::StrCat("the deadline passed, and this process could not look for the answer: the "
                                "poller of its channel has been held for ",
                                transport::RoughDuration(held), " by ", transport::Describe(*holder)),
                   // The poller that is held was to send it, too.
                   Sent::kPerhaps);
}

}  // namespace hawser::internal
