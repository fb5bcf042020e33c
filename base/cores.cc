#include "hawser/base/cores.h"

#include <sched.h>

#include <fstream>
#include <memory>
#include <utility>

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
