#include "hawser/transport/peer_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/peer_table.h"
#include "hawser/transport/fabric/peer_text.h"

namespace hawser::transport {
namespace {

// A pipe that says it is writable takes PIPE_BUF (4096) bytes without blocking (pipe(7)), which is more than
// a line has.
bool WriteToStderr(absl::string_view line) {
  pollfd ready = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT) return false;
  return write(STDERR_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

}  // namespace

PeerLog::PeerLog(const Limits& limits, Write write) : limits_(limits), write_(std::move(write)) {}

PeerLog& PeerLog::Stderr() {
  // Never destroyed: pollers go on until the process has ended.
  static PeerLog* const log = new PeerLog(Limits(), WriteToStderr);
  return *log;
}

bool PeerLog::Bucket::Allows(const Rate& rate, int64_t now_ns) const {
  return used_until_ns - now_ns <= (rate.burst - 1) * rate.interval_ns;
}

void PeerLog::Bucket::Take(const Rate& rate, int64_t now_ns) {
  used_until_ns = std::max(used_until_ns, now_ns) + rate.interval_ns;
}

void PeerLog::Line(int64_t now_ns, const fabric::SocketAddress& peer, absl::string_view text) {
  if (!mutex_.TryLock()) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Bucket& address = addresses_[absl::Hash<fabric::PeerHost>()(fabric::PeerHost(peer)) % kAddressBuckets];
  bool written = false;
  if (address.Allows(limits_.address, now_ns) && process_.Allows(limits_.process, now_ns)) {
    address.Take(limits_.address, now_ns);
    process_.Take(limits_.process, now_ns);
    const uint64_t suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
    const std::string escaped = EscapePeerText(text.substr(0, kTextBytesMax));
    // Again: it may be cut inside of a character.
    std::string line = absl::StrCat("hawser: ", EscapePeerText(escaped.substr(0, kTextBytesMax)));
    if (suppressed != 0)
      absl::StrAppend(&line, " (", suppressed, " lines about peers before this were not written)");
    line.push_back('\n');
    written = write_(line);
    if (!written) suppressed_.fetch_add(suppressed, std::memory_order_relaxed);
  }
  if (!written) suppressed_.fetch_add(1, std::memory_order_relaxed);
  mutex_.Unlock();
}

}  // namespace hawser::transport
