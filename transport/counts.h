#ifndef HAWSER_TRANSPORT_COUNTS_H_
#define HAWSER_TRANSPORT_COUNTS_H_

#include <atomic>
#include <cstdint>

#include "hawser/transport/poller_stats.h"

namespace hawser::transport {

// A counter that one thread at a time increments, and any thread reads. It costs no locked instruction.
class Count {
 public:
  void Add(uint64_t more = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Messages of all connections of a poller; see PollerStats::Messages.
struct MessageCounts {
  Count whole, pushed, read;

  PollerStats::Messages values() const { return {whole.value(), pushed.value(), read.value()}; }
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_COUNTS_H_
