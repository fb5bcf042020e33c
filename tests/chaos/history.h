#ifndef HAWSER_TESTS_CHAOS_HISTORY_H_
#define HAWSER_TESTS_CHAOS_HISTORY_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hawser::chaos {

// What happened, one line for each event with the seconds since the start, and what was wrong.
// Thread: any.
class History {
 public:
  // Something that was done, or ended: "kill", "server". Counted by `what`.
  void Event(absl::string_view what, absl::string_view whom);
  void Note(absl::string_view text);
  void Wrong(absl::string_view text);

  bool wrong() const;
  // "cut 12, kill 3".
  std::string Counts() const;

 private:
  void Line(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Time start_ = absl::Now();
  mutable absl::Mutex mutex_;
  int wrong_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_HISTORY_H_
