#include "hawser/base/thread.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/cores.h"

namespace hawser {

absl::StatusOr<std::thread> StartThread(const char* name, absl::AnyInvocable<void()> function) {
  try {
    return std::thread([name, cores = CoresBeforeBindTo(), function = std::move(function)]() mutable {
      pthread_setname_np(pthread_self(), name);
      if (!cores.empty()) RunOn(cores);
      function();
    });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start the thread ", name, ": ", error.what(),
                     "; the limits on threads are `ulimit -u` and the pids.max of the cgroup"));
  }
}

}  // namespace hawser
