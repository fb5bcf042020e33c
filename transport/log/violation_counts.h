#ifndef HAWSER_TRANSPORT_LOG_VIOLATION_COUNTS_H_
#define HAWSER_TRANSPORT_LOG_VIOLATION_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// What the peers that came to one poller did wrong: counted by reason, and said in the log (PeerLog). A peer
// that this process dialed is not among them: the calls that end with the connection say why.
class ViolationCounts {
 public:
  // `text` names the peer and says what it did. On the poller.
  void Record(Violation violation, const SocketAddress& peer, absl::string_view text);

  // A peer had broken nothing, but stood still while this side drained (DrainWatch). On the poller.
  void CountStalled() { stalled_.fetch_add(1, std::memory_order_relaxed); }

  // From any thread.
  uint64_t count(Violation violation) const {
    return counts_[static_cast<size_t>(violation)].load(std::memory_order_relaxed);
  }
  uint64_t stalled() const { return stalled_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kViolationCount> counts_ = {};
  std::atomic<uint64_t> stalled_{0};
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LOG_VIOLATION_COUNTS_H_
