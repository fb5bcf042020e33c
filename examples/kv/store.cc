#include "examples/kv/store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace kv {
namespace {

absl::Status NoSuchKey(absl::string_view key) {
  return absl::NotFoundError(absl::StrCat("no key \"", key, "\""));
}

}  // namespace

absl::StatusOr<uint64_t> Store::Put(absl::string_view key, Value value) {
  Value old;  // Freed without the lock, because freeing large memory may take a while.
  absl::MutexLock lock(&mutex_);
  auto found = entries_.find(key);
  const uint64_t freed_bytes = found == entries_.end() ? 0 : Footprint(key, found->second.value);
  const uint64_t memory_bytes = memory_bytes_ - freed_bytes + Footprint(key, value);
  if (memory_bytes > memory_bytes_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the ", Footprint(key, value), " bytes of key and value do not fit: ", memory_bytes_,
                     " of ", memory_bytes_max_, " bytes are taken; remove some"));
  }
  const bool replaces = found != entries_.end();
  if (!replaces) found = entries_.emplace(key, Entry()).first;
  memory_bytes_ = memory_bytes;
  Entry& entry = found->second;
  value_bytes_ += value.bytes.size() - entry.value.bytes.size();
  old = std::exchange(entry.value, std::move(value));
  entry.revision = changes_->last_revision() + 1;
  // The table has the change before the log does: another thread may push at once what it finds in the log.
  if (table_ != nullptr) table_->Put(key, entry.value.bytes, entry.revision, replaces);
  return changes_->Append(Change::Kind::kPut, key, entry.value.bytes.size());
}

absl::StatusOr<Entry> Store::Get(absl::string_view key) const {
  absl::MutexLock lock(&mutex_);
  auto found = entries_.find(key);
  if (found == entries_.end()) return NoSuchKey(key);
  return found->second;
}

absl::StatusOr<uint64_t> Store::Remove(absl::string_view key) {
  Value old;  // As in Put().
  absl::MutexLock lock(&mutex_);
  auto found = entries_.find(key);
  if (found == entries_.end()) return NoSuchKey(key);
  old = std::move(found->second.value);
  value_bytes_ -= old.bytes.size();
  memory_bytes_ -= Footprint(key, old);
  entries_.erase(found);
  if (table_ != nullptr) table_->Remove(key);  // Before the log has it, as in Put().
  return changes_->Append(Change::Kind::kRemove, key, 0);
}

Store::Page Store::List(absl::string_view prefix, absl::string_view start, size_t keys_max,
                        uint64_t bytes_max, bool with_values) const {
  Page page;
  uint64_t bytes = 0;
  absl::MutexLock lock(&mutex_);
  for (auto it = entries_.lower_bound(std::max(prefix, start)); it != entries_.end(); ++it) {
    const auto& [key, entry] = *it;
    if (!absl::StartsWith(key, prefix)) break;
    bytes += key.size() + (with_values ? entry.value.bytes.size() : 0);
    if (page.items.size() == keys_max || (bytes > bytes_max && !page.items.empty())) {
      page.next = key;
      break;
    }
    page.items.push_back({key, entry});
  }
  return page;
}

Store::Totals Store::totals() const {
  absl::MutexLock lock(&mutex_);
  return {entries_.size(), value_bytes_, memory_bytes_};
}

}  // namespace kv
