#ifndef EXAMPLES_KV_CHANGE_LOG_H_
#define EXAMPLES_KV_CHANGE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace kv {

struct Change {
  enum class Kind { kPut, kRemove };
  uint64_t revision;
  Kind kind;
  std::string key;
  uint64_t size_bytes;  // The size of the new value; 0 for kRemove.
};

// The last changes of a store, in order. Its memory is bounded, so it drops the oldest ones. A reader is only
// a revision number, so any number of slow readers costs the writers nothing.
// Thread: any.
class ChangeLog {
 public:
  // Keeps the newest changes that fit `bytes_max`; at least one.
  explicit ChangeLog(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Gives the change the next revision, the first one being 1, and returns it.
  uint64_t Append(Change::Kind kind, absl::string_view key, uint64_t size_bytes);

  // The revision of the newest change; 0 before the first.
  uint64_t last_revision() const;

  // Whether it still has every change after `revision`. False for a revision that does not exist yet.
  bool ReachesBackTo(uint64_t revision) const;

  struct Batch {
    std::vector<Change> changes;
    uint64_t through = 0;  // Read after this revision next.
    bool more = false;     // Changes behind `through` have not been looked at yet.
    bool lost = false;     // Some changes after revision `after` were dropped; `through` is the newest one.
  };
  // The changes after revision `after` of keys that begin with `prefix`: at most `changes_max` of them, and
  // no more once their keys fill `bytes_max`. It checks at most kLookedAtMax changes, so that a rare prefix
  // does not hold the log for long. Without changes and without `more` there are no others.
  Batch Read(uint64_t after, absl::string_view prefix, size_t changes_max, size_t bytes_max) const;

  static constexpr size_t kLookedAtMax = 1024;  // Some 50 us.

 private:
  static size_t Footprint(const Change& change) { return sizeof(Change) + change.key.size(); }
  // The revision before that of the oldest change.
  uint64_t Horizon() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return last_revision_ - changes_.size(); }

  const size_t bytes_max_;
  mutable absl::Mutex mutex_;  // Held for a bounded time; its holder acquires no other mutex.
  std::deque<Change> changes_ ABSL_GUARDED_BY(mutex_);  // Revisions without a gap.
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_revision_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace kv

#endif  // EXAMPLES_KV_CHANGE_LOG_H_
