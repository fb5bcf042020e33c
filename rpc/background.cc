#include "hawser/rpc/background.h"

#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace hawser::internal {
namespace {

struct Released {
  absl::Mutex mutex;
  std::vector<std::shared_ptr<transport::Runtime>> runtimes ABSL_GUARDED_BY(mutex);
};

Released& TheReleased() {
  static auto* const released = new Released();
  return *released;
}

bool OnAPollerOf(transport::Runtime& runtime) {
  for (size_t i = 0; i < runtime.poller_count(); ++i) {
    if (runtime.poller(i).Held()) return true;
  }
  return false;
}

}  // namespace

absl::Status RunInBackground(absl::AnyInvocable<void()> function) {
  try {
    std::thread(std::move(function)).detach();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a thread: ", error.what()));
  }
  return absl::OkStatus();
}

void ReleaseRuntime(std::shared_ptr<transport::Runtime> runtime) {
  if (runtime == nullptr || !OnAPollerOf(*runtime)) return;
  if (runtime.use_count() == 1) {
    // In a box that is leaked if there is no thread for it.
    auto* const box = new std::shared_ptr<transport::Runtime>(std::move(runtime));
    RunInBackground([box] { delete box; }).IgnoreError();
    return;
  }
  Released& released = TheReleased();
  absl::MutexLock lock(&released.mutex);
  // One owner of each is kept, so that ours is not the last one.
  for (const auto& kept : released.runtimes) {
    if (kept == runtime) return runtime.reset();
  }
  released.runtimes.push_back(std::move(runtime));
}

void ReleaseRuntimesNow() {
  std::vector<std::shared_ptr<transport::Runtime>> runtimes;
  Released& released = TheReleased();
  absl::MutexLock lock(&released.mutex);
  runtimes.swap(released.runtimes);
}

void PostKeeping(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                 transport::MailboxItem* item) {
  poller.Post(item);
  ReleaseRuntime(std::move(runtime));
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
