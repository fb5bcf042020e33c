#include "hawser/tools/hawser/health_watcher.h"

#include <iostream>
#include <utility>

#include "hawser/tools/hawser/command.h"

namespace hawser::tool {

absl::Status HealthWatcher::Changed(ServerContext&, Wire::ChangedParams::Reader request,
                                    Wire::ChangedResults::Builder) {
  OnChange(request.getStatus());
  return absl::OkStatus();
}

void HealthWatcher::OnStateChange(ChannelState state, const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (connected_ && state != ChannelState::kClosed) {
    std::cerr << "hawser health: " << ForPeople(why) << "; reconnecting" << std::endl;
  }
  connected_ = state == ChannelState::kReady;
  if (connected_) ++connections_;
}

void HealthWatcher::OnChange(health::ServingStatus status) {
  absl::MutexLock lock(&mutex_);
  if (changes_.size() >= kChangesMax) changes_.pop_front();
  changes_.push_back(status);
}

HealthWatcher::News HealthWatcher::Wait(uint64_t connections, absl::Time again) {
  const auto news = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !changes_.empty() || connections_ > connections;
  };
  absl::MutexLock lock(&mutex_);
  if (!mutex_.AwaitWithDeadline(absl::Condition(&news), again) && !connected_) {
    mutex_.Await(absl::Condition(&news));
  }
  return {connections_, std::exchange(changes_, {})};
}

}  // namespace hawser::tool
