#include "hawser/rpc/background.h"

#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::internal {
absl::Status RunInBackground(absl::AnyInvocable<void()> function) {
  try {
    std::thread(std::move(function)).detach();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a thread: ", error.what()));
  }
  return absl::OkStatus();
}

void RunAndWait(transport::Poller& poller, absl::AnyInvocable<void()> function) {
  if (poller.Held()) return function();
  // Shared: we may be gone before Set() has returned.
  const auto done = std::make_shared<transport::Event>();
  poller.Run([done, &function] {
    function();
    done->Set();
  });
  poller.WaitFor(*done);
}

}  // namespace hawser::internal
