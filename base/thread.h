#ifndef HAWSER_BASE_THREAD_H_
#define HAWSER_BASE_THREAD_H_

#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace hawser {

// Starts a thread that runs `function` and is called `name`, a literal of at most 15 letters (prctl(2),
// PR_SET_NAME). It may run where the calling thread might before BindTo() (base/cores.h). ResourceExhausted:
// the system has no thread left; `function` is destroyed.
absl::StatusOr<std::thread> StartThread(const char* name, absl::AnyInvocable<void()> function);

}  // namespace hawser

#endif  // HAWSER_BASE_THREAD_H_
