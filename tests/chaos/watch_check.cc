#include "hawser/tests/chaos/watch_check.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hawser::chaos {

bool WatchCheck::RememberSize(const std::string& key, uint64_t size) {
  if (!absl::StartsWith(key, "c/")) return true;
  std::deque<uint64_t>& sizes = sizes_[key];
  if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) return false;
  sizes.push_back(size);
  if (sizes.size() > kSizesRemembered) sizes.pop_front();
  return true;
}

std::string WatchCheck::Take(absl::string_view line) {
  const std::vector<std::string> fields = absl::StrSplit(line, '\t');
  Entry entry;
  if (fields.size() != 4 || !absl::SimpleAtoi(fields[2], &entry.size) ||
      !absl::SimpleAtoi(fields[3], &entry.revision)) {
    return absl::StrCat("not a line of kv watch: \"", line, "\"");
  }
  const std::string& what = fields[0];
  const std::string& key = fields[1];
  if (what == "lost") {
    started_ = true;
    ++losses_;
    revision_ = entry.revision;
    entries_.clear();
    sizes_.clear();
    return "";
  }
  if (what == "have") {
    if (entry.revision > revision_) return absl::StrCat("\"", line, "\" at revision ", revision_);
    entries_[key] = entry;
    RememberSize(key, entry.size);
    return "";
  }
  if (what != "put" && what != "delete") return absl::StrCat("not a line of kv watch: \"", line, "\"");
  if (started_ && entry.revision != revision_ + 1) {
    return absl::StrCat("\"", line, "\" behind revision ", revision_);
  }
  started_ = true;
  revision_ = entry.revision;
  ++changes_;
  if (what == "put") {
    entries_[key] = entry;
    if (!RememberSize(key, entry.size)) return absl::StrCat("a put ran twice: \"", line, "\"");
  } else {
    entries_.erase(key);
  }
  return "";
}

}  // namespace hawser::chaos
