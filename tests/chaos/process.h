#ifndef HAWSER_TESTS_CHAOS_PROCESS_H_
#define HAWSER_TESTS_CHAOS_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace hawser::chaos {

// A child process that takes and prints lines, and that a test can harm.
// Thread:   any, except that the thread that starts it must outlive it: the kernel ends it when that ends.
// Lifetime: the destructor kills it.
class Process {
 public:
  // `on_line`: runs on a thread of its own for each line of stdout, as soon as it is there.
  using OnLine = std::function<void(const std::string& line)>;
  // Its stderr goes to the file `log`. Dies if it cannot be started.
  Process(std::string name, const std::vector<std::string>& command, const std::string& log,
          OnLine on_line = nullptr);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }

  // A line for its stdin.
  void Say(const std::string& line);
  // Nothing happens if it has ended.
  void Signal(int signal);
  // Waits until it has ended and all its lines have been taken. Returns the exit status, or 128 plus the
  // number of the signal; nullopt if it still runs.
  std::optional<int> Wait(absl::Duration timeout);

  // The lines of stdout, if there is no `on_line` to take them.
  std::string output() const;
  // Waits until `text` is in output(), behind the first `from` bytes. False: it is not, within `timeout`.
  bool AwaitOutput(absl::string_view text, size_t from, absl::Duration timeout) const;
  // The end of its stderr.
  std::string errors() const;

  int open_files() const;
  double resident_mib() const;

 private:
  void Read(const OnLine& on_line);

  const std::string name_;
  const std::string log_;
  pid_t pid_ = -1;
  int pid_fd_ = -1;  // Names the process even if another one has its number by now.
  int stdin_ = -1;
  int stdout_ = -1;
  mutable absl::Mutex mutex_;
  std::optional<int> status_ ABSL_GUARDED_BY(mutex_);
  std::string output_ ABSL_GUARDED_BY(mutex_);
  absl::Notification read_all_;
  std::thread reader_;
};

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_PROCESS_H_
