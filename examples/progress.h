#ifndef EXAMPLES_PROGRESS_H_
#define EXAMPLES_PROGRESS_H_

#include <cstdint>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace examples {

// "512 B", "4.0 KiB", "400.0 MiB".
std::string ReadableBytes(uint64_t bytes);

// One line on a terminal that shows the progress of a long task. A thread of its own redraws it, so the task
// need not do so:
//
//   reading /tmp/image: 120.0 MiB of 400.0 MiB, 30 %, 0.4 s
//
// It shows nothing for a task that takes less than half a second, and nothing at all if stderr is no
// terminal.
// Thread:   any.
// Lifetime: the destructor erases the line, if End() has not. There may be one at a time.
class Progress {
 public:
  Progress();
  explicit Progress(bool shown);  // Does not check whether stderr is a terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Starts a new task. `total_bytes` 0: unknown.
  void Start(absl::string_view what, uint64_t total_bytes = 0);
  void Done(uint64_t bytes);  // `bytes` in total are done.

  // Erases the line, so that the program can print. From then on it shows nothing.
  void End();

  // The current line.
  std::string Line() const;

 private:
  void Draw();
  std::string LineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  uint64_t total_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time started_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread drawer_;
};

}  // namespace examples

#endif  // EXAMPLES_PROGRESS_H_
