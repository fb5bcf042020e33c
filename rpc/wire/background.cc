#include "hawser/rpc/wire/background.h"

#include <memory>
#include <utility>

#include "hawser/base/thread.h"

namespace hawser::internal {
absl::Status RunInBackground(absl::AnyInvocable<void()> function) {
  absl::StatusOr<std::thread> started = StartThread("hawser-aside", std::move(function));
  if (started.ok()) started->detach();
  return started.status();
}

void RunAndWait(transport::Poller& poller, absl::AnyInvocable<void()> function) {
  if (poller.Held()) return function();
  // Shared: this may be destroyed before Set() has returned.
  const auto done = std::make_shared<transport::WaitEvent>();
  poller.Run([done, &function] {
    function();
    done->Set();
  });
  poller.WaitFor(*done);
}

}  // namespace hawser::internal
