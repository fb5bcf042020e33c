#include "hawser/rpc/sleep.h"

#include "hawser/rpc/serving/server_call.h"
#include "hawser/rpc/wire/alarm.h"

namespace hawser {

Sleep::~Sleep() {
  if (alarm_ != nullptr) alarm_->Stop();
}

void Sleep::await_suspend(std::coroutine_handle<> waiting) {
  internal::ServerCall& call = *context_.call_;
  internal::ServingConnection& connection = call.connection();
  alarm_ = std::make_shared<internal::Alarm>(connection.runtime(), connection.poller(), call.Scope(),
                                             context_.method().name, [this, waiting](bool is_cancelled) {
                                               is_cancelled_ = is_cancelled;
                                               waiting.resume();
                                             });
  const std::shared_ptr<internal::Alarm> alarm =
      alarm_;  // The coroutine may end before Start() returns, and this with it.
  alarm->Start(time_);
}

absl::Status Sleep::await_resume() const {
  return is_cancelled_ ? absl::CancelledError("the caller has stopped waiting") : absl::OkStatus();
}

}  // namespace hawser
