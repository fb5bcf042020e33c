#include "hawser/rpc/server/process_snapshot.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/base/fork.h"
#include "hawser/observe/histogram.h"
#include "hawser/rpc/client/channel_list.h"
#include "hawser/rpc/client/outgoing_calls.h"
#include "hawser/rpc/client/remote_counts.h"
#include "hawser/rpc/serving/server_report.h"

namespace hawser::internal {
namespace {

constexpr size_t kChannelsMax = 200;
// Each takes some 2 KiB of the snapshot.
constexpr size_t kOutgoingMax = 500;

int64_t Ns(const timeval& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_usec} * 1000;
}

// When this process began.
struct Started {
  // Ticks since the machine was booted, proc(5).
  Started() {
    std::ifstream file("/proc/self/stat");
    std::string text;
    std::getline(file, text);
    // The name of the program is in parentheses and may contain some; the 22nd field is the 20th behind it.
    size_t at = text.rfind(')');
    for (int field = 0; field < 20 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
    if (at == std::string::npos) return;
    const int64_t ticks = std::strtoll(text.c_str() + at, nullptr, 10);
    timespec since_boot = {};
    clock_gettime(CLOCK_BOOTTIME, &since_boot);
    const int64_t age_ns = int64_t{since_boot.tv_sec} * 1'000'000'000 + since_boot.tv_nsec -
                           ticks * (1'000'000'000 / sysconf(_SC_CLK_TCK));
    unix_ns = absl::GetCurrentTimeNanos() - age_ns;
  }

  int64_t unix_ns = 0;  // 0: the kernel does not say.
};

// 0: unknown.
uint64_t OpenFiles() {
  // Linux 6.2 and later say it so. To count them takes 0.4 ms for a thousand.
  struct stat folder = {};
  if (stat("/proc/self/fd", &folder) == 0 && folder.st_size > 0) return static_cast<uint64_t>(folder.st_size);
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir("/proc/self/fd"), &closedir);
  if (opened == nullptr) return 0;
  uint64_t entries = 0;
  while (readdir(opened.get()) != nullptr) ++entries;
  return entries - std::min<uint64_t>(entries, 3);  // ".", ".." and the folder, which is open meanwhile.
}

void FillInProcess(observe::wire::Process::Builder process) {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  process.setName(program_invocation_short_name);
  process.setPid(static_cast<uint32_t>(getpid()));
  process.setHost(host);
  // Computed once: the two clocks differ a little each time.
  static constinit PerProcess<Started> started;
  process.setStartedUnixNs(started.Get().unix_ns);
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  process.setCpuNs(static_cast<uint64_t>(Ns(used.ru_utime) + Ns(used.ru_stime)));
  uint64_t all_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> all_pages >> resident_pages;
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  process.setVirtualBytes(all_pages * page_bytes);
  process.setResidentBytes(resident_pages * page_bytes);
  process.setOpenFiles(OpenFiles());
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur != RLIM_INFINITY) process.setOpenFilesMax(files.rlim_cur);
}

void FillInCounts(const ChannelCounts& from, observe::wire::ChannelCounts::Builder to) {
  to.setConnects(from.connects);
  to.setLosses(from.losses);
  to.setFailedAttempts(from.failed_attempts);
}

void FillInChannels(observe::wire::Snapshot::Builder snapshot) {
  uint64_t left_out = 0;
  ChannelList::View view = ChannelList::Process().Look(kChannelsMax, left_out);
  std::sort(
      view.channels.begin(), view.channels.end(),
      [](const ChannelList::Channel& a, const ChannelList::Channel& b) { return a.address < b.address; });
  snapshot.setChannelsLeftOut(left_out);
  auto list = snapshot.initChannels(static_cast<unsigned>(view.channels.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    list[i].setAddress(ToKj(view.channels[i].address));
    list[i].setState(ToKj(ToString(view.channels[i].state)));
    list[i].setCallsWaiting(view.channels[i].calls_waiting);
    FillInCounts(view.channels[i].counts, list[i].initCounts());
  }
  snapshot.setChannelCallsWaiting(view.calls_waiting);
  FillInCounts(view.counts, snapshot.initChannelTotals());
}

void FillInOutgoing(observe::wire::Snapshot::Builder snapshot) {
  const OutgoingCalls::View view = OutgoingCalls::Process().Look(kOutgoingMax);
  const std::vector<OutgoingCalls::Totals>& all = view.totals;
  snapshot.setOutgoingLeftOut(view.left_out);
  snapshot.setOutgoingCalls(view.calls);
  snapshot.setOutgoingFailed(view.failed);
  auto list = snapshot.initOutgoing(static_cast<unsigned>(all.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    list[i].setTarget(ToKj(all[i].target));
    observe::wire::Method::Builder method = list[i].initMethod();
    method.setName(ToKj(all[i].method));
    method.setInterfaceId(all[i].interface_id);
    method.setOrdinal(all[i].ordinal);
    FillInEnded(all[i].ended, method);
  }
}

void FillInRemoteOperations(observe::wire::Snapshot::Builder snapshot) {
  const RemoteCounts& counts = RemoteCounts::Process();
  auto kinds = snapshot.initRemoteOperations(RemoteCounts::kKinds);
  for (unsigned i = 0; i < kinds.size(); ++i) {
    const auto kind = static_cast<RemoteCounts::Kind>(i);
    kinds[i].setKind(ToKj(RemoteCounts::NameOf(kind)));
    std::vector<std::pair<absl::StatusCode, uint64_t>> ended;
    for (size_t code = 0; code < RemoteCounts::kCodes; ++code) {
      const auto as_code = static_cast<absl::StatusCode>(code);
      const uint64_t count = counts.Of(kind, as_code);
      if (count != 0 || as_code == absl::StatusCode::kOk) ended.emplace_back(as_code, count);
    }
    auto statuses = kinds[i].initStatuses(static_cast<unsigned>(ended.size()));
    for (unsigned n = 0; n < statuses.size(); ++n) {
      statuses[n].setCode(static_cast<uint16_t>(ended[n].first));
      statuses[n].setName(absl::StatusCodeToString(ended[n].first));
      statuses[n].setCount(ended[n].second);
    }
  }
}

}  // namespace

void FillInOfProcess(observe::wire::Snapshot::Builder snapshot) {
  FillInProcess(snapshot.initProcess());
  FillInChannels(snapshot);
  FillInOutgoing(snapshot);
  FillInRemoteOperations(snapshot);
}

void FillInEnded(const EndedTotals& ended, observe::wire::Method::Builder method) {
  uint64_t calls = 0;
  unsigned codes = 0;
  for (const uint64_t count : ended.by_code) {
    calls += count;
    if (count != 0) ++codes;
  }
  method.setCalls(calls);
  auto statuses = method.initStatuses(codes);
  unsigned next = 0;
  for (size_t code = 0; code < kStatusCodes; ++code) {
    if (ended.by_code[code] == 0) continue;
    statuses[next].setCode(static_cast<uint16_t>(code));
    statuses[next].setName(ToKj(absl::StatusCodeToString(static_cast<absl::StatusCode>(code))));
    statuses[next++].setCount(ended.by_code[code]);
  }
  if (calls == 0) return;
  constexpr unsigned kBuckets = observe::Histogram::kBuckets;
  observe::wire::Histogram::Builder latency = method.initLatency();
  auto bounds = latency.initBoundsNs(kBuckets);
  auto counts = latency.initCounts(kBuckets);
  for (unsigned i = 0; i < kBuckets; ++i) {
    bounds.set(i, observe::Histogram::BoundNs(i));
    counts.set(i, ended.latency.counts[i]);
  }
  latency.setSumNs(ended.latency.sum_ns);
}

}  // namespace hawser::internal
