#ifndef HAWSER_BASE_CORES_H_
#define HAWSER_BASE_CORES_H_

#include <optional>
#include <set>
#include <string>

#include "absl/strings/string_view.h"

// The cores of this machine, by the kernel's numbers.
namespace hawser {

// "0-3,8" -> {0, 1, 2, 3, 8}. Without a value if `text` is not such a list. The kernel's files end it with a
// newline, which the caller removes.
std::optional<std::set<int>> ParseCores(absl::string_view text);

// The cores that the calling thread may run on. Empty if the system does not say.
std::set<int> AllowedCores();

// The cores of a NUMA node. Empty: there is no such node, or `node` is -1. `sysfs`: where that is mounted.
std::set<int> CoresOfNode(int node, const std::string& sysfs = "/sys");

// How many cores' time the control groups of this process let it use, by the least quota of its group and
// those above: cpu.max (version 2) or cpu.cfs_quota_us (version 1). Without a value if none limits it.
// `groups`: what the kernel says of the process; `mount`: where the groups are mounted.
std::optional<double> CpuQuota(const std::string& groups = "/proc/self/cgroup",
                               const std::string& mount = "/sys/fs/cgroup");

// The calling thread, and threads that it starts, run on `cores` only. False if the system refuses that.
bool RunOn(const std::set<int>& cores);

// The same for a thread whose helpers are not to share its cores, such as that of a poller that spins:
// StartThread() starts them where the calling thread might run before.
bool BindTo(const std::set<int>& cores);

// Where the calling thread might run before its BindTo(); empty if it called none.
const std::set<int>& CoresBeforeBindTo();

}  // namespace hawser

#endif  // HAWSER_BASE_CORES_H_
