#include "examples/kv/change_log.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace kv {

uint64_t ChangeLog::Append(Change::Kind kind, absl::string_view key, uint64_t size_bytes) {
  absl::MutexLock lock(&mutex_);
  changes_.push_back({++last_revision_, kind, std::string(key), size_bytes});
  bytes_ += Footprint(changes_.back());
  while (bytes_ > bytes_max_ && changes_.size() > 1) {
    bytes_ -= Footprint(changes_.front());
    changes_.pop_front();
  }
  return last_revision_;
}

uint64_t ChangeLog::last_revision() const {
  absl::MutexLock lock(&mutex_);
  return last_revision_;
}

bool ChangeLog::ReachesBackTo(uint64_t revision) const {
  absl::MutexLock lock(&mutex_);
  return revision >= Horizon() && revision <= last_revision_;
}

ChangeLog::Batch ChangeLog::Read(uint64_t after, absl::string_view prefix, size_t changes_max,
                                 size_t bytes_max) const {
  absl::MutexLock lock(&mutex_);
  if (after < Horizon() || after > last_revision_) return {.through = last_revision_, .lost = true};

  Batch batch{.through = after};
  size_t bytes = 0;
  const size_t first = after - Horizon();
  const size_t end = std::min(changes_.size(), first + kLookedAtMax);
  for (size_t i = first; i < end; ++i) {
    const Change& change = changes_[i];
    if (absl::StartsWith(change.key, prefix)) {
      if (batch.changes.size() == changes_max || bytes >= bytes_max) break;
      batch.changes.push_back(change);
      bytes += change.key.size();
    }
    batch.through = change.revision;
  }
  batch.more = batch.through != last_revision_;
  return batch;
}

}  // namespace kv
