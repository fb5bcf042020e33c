// What this process may: lock memory, run near the NIC, use huge pages, fork.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "hawser/base/cores.h"
#include "hawser/tools/doctor/checks.h"
#include "hawser/transport/connection/pinned_rings.h"
#include "hawser/transport/poller/queue_depths.h"

namespace hawser::doctor {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
// The pool registers small buffers by slabs of this size: with less, not one.
constexpr uint64_t kSlabBytes = uint64_t{2} << 20;

// For as many connections, with the default options, the memory of their rings is counted.
constexpr uint64_t kConnections = 1000;

std::string Size(uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  constexpr const char* kUnits[] = {" bytes", " KiB", " MiB", " GiB", " TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrCat(bytes, kUnits[unit]);
}

// In MiB, rounded up.
std::string Rounded(uint64_t bytes) { return Size((bytes + (1 << 20) - 1) >> 20 << 20); }

// What stands behind `name` in a file of lines such as "CapEff:	000001ffffffffff"; "" if nothing does.
std::string ValueOf(const std::string& text, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, name)) return std::string(absl::StripAsciiWhitespace(line));
  }
  return "";
}

struct Memlock {
  uint64_t soft_bytes;
  uint64_t hard_bytes;
};

std::optional<uint64_t> ParseLimit(absl::string_view text) {
  uint64_t bytes = 0;
  if (text == "unlimited") return kUnlimited;
  return absl::SimpleAtoi(text, &bytes) ? std::optional(bytes) : std::nullopt;
}

std::optional<Memlock> ReadMemlock(const System& system) {
  const std::string value = ValueOf(system.ReadOrEmpty("/proc/self/limits"), "Max locked memory");
  const std::vector<std::string> fields = absl::StrSplit(value, ' ', absl::SkipEmpty());
  if (fields.size() < 2) return std::nullopt;
  const std::optional<uint64_t> soft = ParseLimit(fields[0]), hard = ParseLimit(fields[1]);
  if (!soft || !hard) return std::nullopt;
  return Memlock{*soft, *hard};
}

// The kernel asks for CAP_IPC_LOCK in the first user namespace (ib_umem_get()), so root of a container that
// has a user namespace of its own is not exempt.
bool IsExempt(const System& system) {
  constexpr int kCapIpcLock = 14;
  uint64_t effective = 0;
  const std::string text = ValueOf(system.ReadOrEmpty("/proc/self/status"), "CapEff:");
  if (!absl::SimpleHexAtoi(text, &effective) || (effective >> kCapIpcLock & 1) == 0) return false;
  const absl::StatusOr<std::string> map = system.Read("/proc/self/uid_map");
  if (!map.ok()) return true;  // A kernel without user namespaces.
  const std::vector<std::string> fields = absl::StrSplit(*map, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  return fields == std::vector<std::string>{"0", "0", "4294967295"};
}

Finding CheckNumaOf(const System& system, const Device& device, const std::string& allowed_text) {
  Finding finding{.check = "numa", .subject = device.name};
  int node = 0;
  if (!absl::SimpleAtoi(device.numa_node, &node) || node < 0) {
    finding.found = "belongs to no NUMA node, as far as the kernel knows";
    return finding;
  }
  const std::string near_text =
      system.ReadOrEmpty(absl::StrCat("/sys/devices/system/node/node", node, "/cpulist"));
  const std::optional<std::set<int>> near = ParseCores(near_text), allowed = ParseCores(allowed_text);
  if (!near || !allowed) {
    finding.level = Level::kWarning;
    finding.found = absl::StrCat("on NUMA node ", node, ", but it cannot be told which CPUs are near (\"",
                                 near_text, "\") and allowed (\"", allowed_text, "\")");
    finding.advice = absl::StrCat("see lscpu; to be near: numactl --cpunodebind=", node);
    return finding;
  }
  size_t near_and_allowed = 0;
  for (const int cpu : *allowed) near_and_allowed += near->count(cpu);
  finding.found = absl::StrCat("on NUMA node ", node, " with CPUs ", near_text,
                               "; this process may run on CPUs ", allowed_text);
  if (near_and_allowed == 0) {
    finding.level = Level::kWarning;
    finding.found += ", none of them near";
    finding.advice = absl::StrCat("every access to the NIC crosses sockets: numactl --cpunodebind=", node,
                                  " --preferred=", node, ", or another cpuset");
  } else if (near_and_allowed < allowed->size()) {
    finding.advice = absl::StrCat("for the least latency: numactl --cpunodebind=", node);
  }
  return finding;
}

}  // namespace

Findings CheckMemlock(const System& system, const std::vector<VerbsDevice>& verbs_devices,
                      uint64_t pool_limit_bytes) {
  Finding finding{.check = "memlock"};
  const std::optional<Memlock> limit = ReadMemlock(system);
  bool windows = true, rings = verbs_devices.empty();
  for (const VerbsDevice& device : verbs_devices) {
    windows = windows && device.uses_windows;
    rings = rings || device.pins_rings;
  }
  const std::optional<std::set<int>> cores =
      ParseCores(ValueOf(system.ReadOrEmpty("/proc/self/status"), "Cpus_allowed_list:"));
  const size_t pollers = cores ? std::clamp<size_t>(cores->size(), 1, transport::kPollersDefaultMost) : 1;
  std::string pool =
      absl::StrCat("Hawser registers up to ", Size(pool_limit_bytes), " (BufferPoolOptions::limit_bytes)");
  uint64_t needed_bytes = pool_limit_bytes;
  if (!windows) {
    needed_bytes += pool_limit_bytes;
    pool += ", and without memory windows what is granted to peers counts a second time";
  }
  if (rings) {
    const uint64_t ring_bytes = transport::PinnedRingBytes(pollers, kConnections, {}, windows);
    needed_bytes += ring_bytes;
    absl::StrAppend(&pool, ", and a NIC pins some ", Rounded(ring_bytes), " for the rings of ", kConnections,
                    " connections over ", pollers, " pollers");
  }
  if (IsExempt(system)) {
    finding.found = absl::StrCat("no limit for this user, who has CAP_IPC_LOCK; ", pool);
    return {finding};
  }
  if (!limit) {
    finding.level = Level::kWarning;
    finding.found = absl::StrCat("/proc/self/limits does not tell the limit; ", pool);
    finding.advice = "see `ulimit -l`";
    return {finding};
  }
  finding.found = absl::StrCat("limit ", Size(limit->soft_bytes), ", ", pool);
  if (limit->soft_bytes >= needed_bytes) return {finding};
  const bool none = limit->soft_bytes < kSlabBytes;
  finding.level = none ? Level::kProblem : Level::kWarning;
  finding.found +=
      none ? ": too little for a single buffer" : ": what is more will fail with ResourceExhausted";
  finding.advice =
      limit->hard_bytes >= needed_bytes
          ? "ulimit -l unlimited before the program starts"
          : "raise it (memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity for systemd, --ulimit "
            "memlock=-1 for a container)";
  if (!none) finding.advice += ", or lower BufferPoolOptions::limit_bytes";
  return {finding};
}

Findings CheckNuma(const System& system, const std::vector<Device>& devices) {
  const std::string allowed = ValueOf(system.ReadOrEmpty("/proc/self/status"), "Cpus_allowed_list:");
  Findings findings;
  for (const Device& device : devices) findings.push_back(CheckNumaOf(system, device, allowed));
  return findings;
}

Findings CheckHugePages(const System& system) {
  constexpr char kPath[] = "/sys/kernel/mm/transparent_hugepage/enabled";
  const std::string text = system.ReadOrEmpty(kPath);
  Finding finding{.check = "huge pages"};
  if (absl::StrContains(text, "[always]") || absl::StrContains(text, "[madvise]")) {
    finding.found = absl::StrCat("transparent huge pages: ", text, "; Hawser's buffers ask for them");
  } else {
    finding.level = Level::kWarning;
    finding.found =
        absl::StrContains(text, "[never]")
            ? absl::StrCat("transparent huge pages are off (", text, "): buffers lie on small pages")
            : absl::StrCat(kPath, " has \"", text, "\": buffers lie on small pages, perhaps");
    finding.advice = absl::StrCat("registering and READs are slower; echo madvise > ", kPath);
  }
  return {finding};
}

Findings CheckFork(const System& system) {
  Finding finding{.check = "fork"};
  finding.found =
      "a child must not use what its parent opened: there Hawser's channels answer FailedPrecondition and "
      "touch nothing";
  finding.advice =
      "make channels and servers after fork(), those of rdma:// before the parent uses any, or call exec()";
  std::vector<std::string> set;
  for (const char* name : {"RDMAV_FORK_SAFE", "IBV_FORK_SAFE"}) {
    if (!system.Environment(name).empty()) set.emplace_back(name);
  }
  if (!set.empty()) {
    absl::StrAppend(
        &finding.found, "; ", absl::StrJoin(set, ", "),
        " is set, and changes nothing: Hawser always calls ibv_fork_init(), which keeps registered "
        "memory out of children on kernels before 5.12");
  }
  return {finding};
}

}  // namespace hawser::doctor
