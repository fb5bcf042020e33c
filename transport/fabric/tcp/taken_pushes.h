#ifndef HAWSER_TRANSPORT_FABRIC_TCP_TAKEN_PUSHES_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_TAKEN_PUSHES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hawser/transport/fabric/tcp/send_queue.h"

namespace hawser::fabric {

// The pushes of the peer that QueuePair::TakePush() has taken, until they complete.
// Thread:   that of the queue pair.
class TakenPushes {
 public:
  // `all`: all bytes of the push are in its sink. Otherwise the rest has yet to come, and the fabric owns the
  // sink. All of the push that was added before it have come.
  void Add(uint64_t wr_id, bool all) {
    if (awaits_rest()) RestHasCome();
    if (all) {
      taken_.push_back(wr_id);
    } else {
      filling_ = wr_id;
    }
  }
  bool awaits_rest() const { return filling_.has_value(); }
  void RestHasCome() {
    taken_.push_back(*filling_);
    filling_.reset();
  }

  // Completing, as TcpSendQueue::Deliver().
  bool HasCompletions(bool flush) const { return !taken_.empty() || (flush && filling_.has_value()); }
  void Deliver(uint32_t qp_num, bool flush, CompletionSpan& out) {
    size_t count = 0;
    for (; count < taken_.size() && !out.full(); ++count) {
      out.Add(taken_[count], qp_num, CompletionStatus::kSuccess, Opcode::kRead, 0);
    }
    taken_.erase(taken_.begin(), taken_.begin() + static_cast<ptrdiff_t>(count));
    if (!flush || !filling_.has_value() || out.full()) return;
    out.Add(*std::exchange(filling_, std::nullopt), qp_num, CompletionStatus::kFlushed, Opcode::kRead, 0);
  }

 private:
  std::vector<uint64_t> taken_;      // The wr_ids of those that are in their sinks.
  std::optional<uint64_t> filling_;  // That of the one whose rest has yet to come.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_TAKEN_PUSHES_H_
