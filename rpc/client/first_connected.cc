#include "hawser/rpc/client/first_connected.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/client/first_attempt.h"
#include "hawser/rpc/status.h"

namespace hawser::internal {
namespace {

// Channels that the text of an error names.
constexpr size_t kFailuresListed = 4;

}  // namespace

void FirstConnected::Await(size_t number, const std::shared_ptr<ChannelCore>& channel) {
  channel->poller().Run([self = shared_from_this(), number, channel] {
    channel->first_attempt().Tell(
        [self, number](const absl::Status& result) { self->SetResult(number, result); });
  });
}

void FirstConnected::SetResult(size_t number, const absl::Status& result) {
  absl::MutexLock lock(&mutex_);
  // It was late. One that is ready is welcome even then.
  if (results_[number].has_value() && !result.ok()) return;
  results_[number] = result;
  changed_.SignalAll();
}

bool FirstConnected::decided() const {
  return std::any_of(results_.begin(), results_.end(),
                     [](const auto& each) { return each.has_value() && each->ok(); }) ||
         std::all_of(results_.begin(), results_.end(), [](const auto& each) { return each.has_value(); });
}

absl::Status FirstConnected::Wait(absl::Span<const std::shared_ptr<ChannelCore>> channels) {
  const absl::Duration patience = channels.front()->connect_timeout() + FirstAttempt::kGrace;
  transport::Environment& environment = channels.front()->poller().environment();
  absl::MutexLock lock(&mutex_);
  while (!environment.Await(
      mutex_, changed_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return decided(); },
      environment.Now() + patience)) {
    for (size_t number = 0; number < channels.size(); ++number) {
      const auto held = channels[number]->poller().called_out().Now();
      if (results_[number].has_value() || !held.has_value()) continue;
      results_[number] = FirstAttempt::HeldUp(channels[number]->connect_timeout(), *held);
    }
  }
  return ErrorOfAll(channels);
}

absl::Status FirstConnected::ErrorOfAll(absl::Span<const std::shared_ptr<ChannelCore>> channels) const {
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  std::vector<std::string> texts;
  for (size_t number = 0; number < channels.size(); ++number) {
    if (!results_[number].has_value()) continue;
    const absl::Status& result = *results_[number];
    if (result.ok()) return absl::OkStatus();
    // As of the addresses of a name: a refusal says more than a timeout.
    if (code == absl::StatusCode::kUnavailable) code = result.code();
    texts.push_back(absl::StrCat("connecting to ", channels[number]->peer_address(), ": ",
                                 absl::string_view(result.message())));
  }
  if (texts.size() > kFailuresListed) {
    const size_t more = texts.size() - kFailuresListed;
    texts.resize(kFailuresListed);
    texts.push_back(absl::StrCat("and ", more, " servers more"));
  }
  absl::Status status(code, absl::StrJoin(texts, "; "));
  KeepTextHere(status, "connecting");
  return status;
}

}  // namespace hawser::internal
