#include "hawser/rpc/client/first_attempt.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/status.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::internal {

FirstAttempt::FirstAttempt(absl::AnyInvocable<void()> on_time_over) : timer_(std::move(on_time_over)) {}

bool FirstAttempt::GoesOn(const absl::Status& why, int64_t next_ns, transport::Poller& poller) {
  if (next_ns >= insists_until_ns_ || !absl::IsResourceExhausted(why) || !transport::IsRefusedByPeer(why))
    return false;
  refused_ = why;
  poller.timers().Set(timer_, insists_until_ns_);
  return true;
}

bool FirstAttempt::End(transport::Poller& poller) {
  if (std::exchange(insists_until_ns_, kOver) == kOver) return false;
  poller.timers().Cancel(timer_);
  return true;
}

void FirstAttempt::SetResult(const absl::Status& why) {
  if (done_.is_set()) return;  // It was late.
  result_ = why;
  done_.Set();
  if (listener_ != nullptr) (*std::exchange(listener_, nullptr))(why);
}

void FirstAttempt::Tell(Listener listener) {
  if (done_.is_set()) return listener(result_);
  listener_ = std::make_unique<Listener>(std::move(listener));
}

absl::Status FirstAttempt::Wait(transport::Poller& poller, absl::Duration connect_timeout,
                                const std::string& peer_address) {
  const auto until_ns = [&] {
    return transport::After(poller.environment().NowNs(), connect_timeout + kGrace);
  };
  const auto connecting = [&](const absl::Status& why) {
    absl::Status status(why.code(),
                        absl::StrCat("connecting to ", peer_address, ": ", absl::string_view(why.message())));
    KeepTextHere(status, "connecting");
    return status;
  };
  while (!poller.WaitFor(done_, until_ns)) {
    const std::optional<transport::CalledOut::Call> call = poller.called_out().Now();
    if (call.has_value()) return connecting(HeldUp(connect_timeout, *call));
    // The poller was held, and runs again.
  }
  return result_.ok() ? absl::OkStatus() : connecting(result_);
}

absl::Status FirstAttempt::HeldUp(absl::Duration connect_timeout, const transport::CalledOut::Call& by) {
  return absl::UnavailableError(
      absl::StrCat("not done within ", absl::FormatDuration(connect_timeout),
                   " (ChannelOptions::connect_timeout), because the poller that has to do it is held by ",
                   transport::Describe(by)));
}

}  // namespace hawser::internal
