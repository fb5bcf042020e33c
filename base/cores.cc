#include "hawser/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hawser {
namespace {

// More than any kernel is built for (NR_CPUS is at most 8192).
constexpr int kCoresMax = 1 << 14;

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeSet>;

std::set<int>& Before() {
  thread_local std::set<int> before;
  return before;
}

CpuSet EmptySet() {
  CpuSet set(CPU_ALLOC(kCoresMax));
  CPU_ZERO_S(CPU_ALLOC_SIZE(kCoresMax), set.get());
  return set;
}

// Empty: `path` cannot be read.
std::vector<std::string> WordsOfFirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return absl::StrSplit(line, ' ', absl::SkipEmpty());
}

// The quota of the group whose folder is `folder`.
std::optional<double> QuotaOf(const std::string& folder) {
  std::vector<std::string> words = WordsOfFirstLine(folder + "/cpu.max");
  if (words.size() != 2) {
    words = WordsOfFirstLine(folder + "/cpu.cfs_quota_us");
    const std::vector<std::string> period = WordsOfFirstLine(folder + "/cpu.cfs_period_us");
    words.insert(words.end(), period.begin(), period.end());
  }
  int64_t quota = 0, period = 0;
  // "max", or -1: no limit.
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &quota) || !absl::SimpleAtoi(words[1], &period))
    return {};
  if (quota <= 0 || period <= 0) return {};
  return static_cast<double>(quota) / static_cast<double>(period);
}

}  // namespace

std::optional<std::set<int>> ParseCores(absl::string_view text) {
  std::set<int> cores;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) return std::nullopt;
    last = first;
    if (ends.first.size() != part.size() && !absl::SimpleAtoi(ends.second, &last)) return std::nullopt;
    if (first < 0 || last < first || last >= kCoresMax) return std::nullopt;
    for (int core = first; core <= last; ++core) cores.insert(core);
  }
  return cores;
}

std::set<int> AllowedCores() {
  const CpuSet set = EmptySet();
  std::set<int> cores;
  if (sched_getaffinity(0, CPU_ALLOC_SIZE(kCoresMax), set.get()) != 0) return cores;
  for (int core = 0; core < kCoresMax; ++core) {
    if (CPU_ISSET_S(core, CPU_ALLOC_SIZE(kCoresMax), set.get())) cores.insert(core);
  }
  return cores;
}

std::set<int> CoresOfNode(int node, const std::string& sysfs) {
  if (node < 0) return {};
  std::ifstream file(absl::StrCat(sysfs, "/devices/system/node/node", node, "/cpulist"));
  std::string text;
  std::getline(file, text);
  return ParseCores(text).value_or(std::set<int>());
}

std::optional<double> CpuQuota(const std::string& groups, const std::string& mount) {
  std::optional<double> least;
  std::ifstream file(groups);
  for (std::string line; std::getline(file, line);) {
    // "0::/user.slice/a.scope", or "4:cpu,cpuacct:/a".
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[0] != "0" && std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end())
      continue;
    const std::string root = parts[0] == "0" ? mount : absl::StrCat(mount, "/", parts[1]);
    // Up to the root, since in a container that may be all that is mounted.
    for (std::string path = parts[2];; path.resize(path.rfind('/'))) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      const std::optional<double> quota = QuotaOf(root + path);
      if (quota.has_value()) least = std::min(*quota, least.value_or(*quota));
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

const std::set<int>& CoresBeforeBindTo() { return Before(); }

bool BindTo(const std::set<int>& cores) {
  std::set<int> before = AllowedCores();
  if (!RunOn(cores)) return false;
  if (Before().empty()) Before() = std::move(before);
  return true;
}

bool RunOn(const std::set<int>& cores) {
  const CpuSet set = EmptySet();
  for (const int core : cores) {
    if (core >= 0 && core < kCoresMax) CPU_SET_S(core, CPU_ALLOC_SIZE(kCoresMax), set.get());
  }
  return sched_setaffinity(0, CPU_ALLOC_SIZE(kCoresMax), set.get()) == 0;
}

}  // namespace hawser
