#include "hawser/transport/log/peer_log.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/fork.h"
#include "hawser/base/peer_table.h"

namespace hawser::transport {
namespace {

class ProcessPeerLog final : public PeerLog {
 public:
  ProcessPeerLog() : PeerLog(Limits(), fabric::MonotonicNs, TryLog) {}
};

}  // namespace

PeerLog::PeerLog(const Limits& limits, Clock now_ns, Write write)
    : limits_(limits), write_(std::move(write)), now_ns_(std::move(now_ns)) {}

PeerLog& PeerLog::Process() {
  // Never destroyed, because pollers run until the process ends.
  static constinit PerProcess<ProcessPeerLog> log;
  return log.Get();
}

bool PeerLog::Bucket::Allows(const Rate& rate, int64_t now_ns) const {
  return used_until_ns - now_ns <= (rate.burst - 1) * rate.interval_ns;
}

void PeerLog::Bucket::Take(const Rate& rate, int64_t now_ns) {
  used_until_ns = std::max(used_until_ns, now_ns) + rate.interval_ns;
}

void PeerLog::Line(LogSeverity severity, const SocketAddress& peer, absl::string_view text) {
  LineAbout(kPeers, absl::Hash<PeerHost>()(PeerHost(peer)), severity, text);
}

void PeerLog::Line(LogSeverity severity, absl::string_view subject, absl::string_view text) {
  LineAbout(kSubjects, absl::Hash<absl::string_view>()(subject), severity, text);
}

void PeerLog::Debug(absl::string_view text) {
  if (LogLevel() <= LogSeverity::kDebug) LineIf(TakeDebug(), LogSeverity::kDebug, text);
}

void PeerLog::LineAbout(Kind kind, size_t subject_hash, LogSeverity severity, absl::string_view text) {
  if (severity >= LogLevel()) LineIf(Take(kind, subject_hash), severity, text);
}

void PeerLog::LineIf(bool allowed, LogSeverity severity, absl::string_view text) {
  if (!allowed) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const uint64_t suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
  std::string line(text.substr(0, kTextBytesMax));
  if (suppressed != 0)
    absl::StrAppend(&line, " (", suppressed, " lines about peers before this were not written)");
  if (!write_(severity, line)) suppressed_.fetch_add(suppressed + 1, std::memory_order_relaxed);
}

bool PeerLog::Take(Kind kind, size_t subject_hash) {
  MutexLock lock(mutex_);
  const int64_t now_ns = now_ns_();
  Bucket& process = process_[kind];
  Bucket& subject = subjects_[kind][subject_hash % kBuckets];
  if (!subject.Allows(limits_.subject, now_ns) || !process.Allows(limits_.process, now_ns)) return false;
  subject.Take(limits_.subject, now_ns);
  process.Take(limits_.process, now_ns);
  return true;
}

bool PeerLog::TakeDebug() {
  MutexLock lock(mutex_);
  const int64_t now_ns = now_ns_();
  if (!debug_.Allows(limits_.debug, now_ns)) return false;
  debug_.Take(limits_.debug, now_ns);
  return true;
}

}  // namespace hawser::transport
