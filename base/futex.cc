#include "hawser/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace hawser {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
              std::atomic<uint32_t>::is_always_lock_free);

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration patience) {
  timespec limit = {};
  const bool limited = patience != absl::InfiniteDuration();
  if (limited) limit = absl::ToTimespec(std::max(patience, absl::ZeroDuration()));
  // Every way in which it fails (the word has changed, the time is over, a signal came) has the caller look
  // again.
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, limited ? &limit : nullptr, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace hawser
