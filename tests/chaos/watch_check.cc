#include "hawser/tests/chaos/watch_check.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hawser::chaos {

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
    return "";
  }
  if (what == "have") {
    if (entry.revision > revision_) return absl::StrCat("\"", line, "\" at revision ", revision_);
    entries_[key] = entry;
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
  } else {
    entries_.erase(key);
  }
  return "";
}

}  // namespace hawser::chaos
