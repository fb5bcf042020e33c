#ifndef HAWSER_TESTS_CHAOS_WATCH_CHECK_H_
#define HAWSER_TESTS_CHAOS_WATCH_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace hawser::chaos {

// What a watcher of all keys knows, by the lines that `kv watch ""` prints. Each change has the next
// revision, or a "lost" line comes before it, after which everything begins anew. Successive puts of one key
// of the clients ("c/...") differ in size, so a size that comes again means that a put ran twice.
class WatchCheck {
 public:
  struct Entry {
    uint64_t size = 0;
    uint64_t revision = 0;
    bool operator==(const Entry&) const = default;
  };

  static constexpr size_t kSizesRemembered = 32;

  // What is wrong with this line after the earlier ones; empty: nothing.
  std::string Take(absl::string_view line);

  uint64_t revision() const { return revision_; }
  uint64_t changes() const { return changes_; }
  uint64_t losses() const { return losses_; }
  // What is there at revision(); all of it only if the watch began before the first change.
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  // False: it is one of the last.
  bool RememberSize(const std::string& key, uint64_t size);

  bool started_ = false;
  uint64_t revision_ = 0;
  uint64_t changes_ = 0;
  uint64_t losses_ = 0;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::deque<uint64_t>> sizes_;  // The last ones of a client's key.
};

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_WATCH_CHECK_H_
