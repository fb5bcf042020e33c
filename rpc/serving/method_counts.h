#ifndef HAWSER_RPC_SERVING_METHOD_COUNTS_H_
#define HAWSER_RPC_SERVING_METHOD_COUNTS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "hawser/base/count.h"
#include "hawser/base/mutex.h"
#include "hawser/observe/histogram.h"

namespace hawser::internal {

inline constexpr size_t kStatusCodes = 17;

// Where a code is in a list of them. One that is none of absl's counts as kUnknown.
inline size_t StatusIndex(absl::StatusCode code) {
  const auto number = static_cast<size_t>(code);
  return number < kStatusCodes ? number : static_cast<size_t>(absl::StatusCode::kUnknown);
}

// Calls that have ended.
struct EndedCalls {
  // By status code. OK has a count of its own, although `latency` counts all calls: a difference of two
  // counts that are read at different moments may go back.
  std::array<Count, kStatusCodes> ended;
  observe::Histogram latency;
};

// The sums of several EndedCalls, at one moment. A value.
struct EndedTotals {
  std::array<uint64_t, kStatusCodes> by_code = {};
  observe::HistogramTotals latency;

  void Add(const EndedCalls& calls) {
    for (size_t code = 0; code < kStatusCodes; ++code) by_code[code] += calls.ended[code].value();
    latency.Add(calls.latency);
  }
  void Add(const EndedTotals& more) {
    for (size_t code = 0; code < kStatusCodes; ++code) by_code[code] += more.by_code[code];
    for (size_t i = 0; i < latency.counts.size(); ++i) latency.counts[i] += more.latency.counts[i];
    latency.sum_ns += more.latency.sum_ns;
  }
};

// The calls of one method that have ended on one poller.
struct MethodCounts : EndedCalls {
  Count request_bytes, response_bytes;
};

// The slowest calls of late: of this minute and of the one before. A minute ends with the first call, or
// Take(), that comes after it; so a poller that is busy keeps the latest also while nothing takes them.
// Thread: Add(): on the poller. The rest: any.
class SlowCalls {
 public:
  struct Call {
    const char* method = nullptr;
    std::string peer;
    std::string identity;
    std::string id;  // ServerContext::call_id().
    absl::StatusCode code = absl::StatusCode::kOk;
    int64_t queued_ns = 0, handler_ns = 0, deferred_ns = 0;
    int64_t all_ns = 0;
    int64_t ended_unix_ns = 0;
  };

  // `now_ns` of these three is Environment::NowNs(), or the poller's time, which is close to it.
  // Whether a call that took so long, and ends now, may be one of them.
  bool Wants(int64_t ns, int64_t now_ns) const {
    return ns > threshold_ns_.load(std::memory_order_relaxed) ||
           now_ns >= minute_ends_ns_.load(std::memory_order_relaxed);
  }
  void Add(Call call, int64_t now_ns);
  // In no order.
  std::vector<Call> Take(int64_t now_ns);

 private:
  static constexpr size_t kKept = 8;
  static constexpr int64_t kWindowNs = 60'000'000'000;

  void Roll(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Stored with mutex_ locked.
  std::atomic<int64_t> threshold_ns_{0};
  std::atomic<int64_t> minute_ends_ns_{0};
  Mutex mutex_;
  std::vector<Call> now_ ABSL_GUARDED_BY(mutex_), before_ ABSL_GUARDED_BY(mutex_);
};

// What a poller counts of the calls that it serves: each call ends in ServingConnection::CountEnd() or
// CountFailure(), and a snapshot reads it (rpc/server/server_snapshot.h). Memory for a method is taken at its
// first call, some 2 KiB, so that a server of a thousand methods does not pay for those that are never
// called.
// Thread: written on the poller, read from any.
class ServingCounters {
 public:
  // `methods`: how many the table has; their indexes are below that.
  explicit ServingCounters(size_t methods)
      : methods_(methods), of_method_(new std::atomic<MethodCounts*>[methods]()) {}
  ~ServingCounters() {
    for (size_t i = 0; i < methods_; ++i) delete of_method_[i].load(std::memory_order_relaxed);
  }
  ServingCounters(const ServingCounters&) = delete;
  ServingCounters& operator=(const ServingCounters&) = delete;

  Count calls_running;  // Subtracts, too.
  Count calls_total;
  SlowCalls slow_calls;
  // When the poller last came back from a handler, on its clock; only on the poller. Handlers that run later
  // in the turn have waited until then.
  int64_t handler_end_ns = 0;

  // A call of the method that `counts` are of ends with `code`, `all_ns` after it came. True: it may be one
  // of the slowest, and the caller adds it to `slow_calls`. On the poller.
  bool CountEnd(MethodCounts& counts, absl::StatusCode code, int64_t all_ns, int64_t now_ns) {
    counts.ended[StatusIndex(code)].Add();
    counts.latency.Add(all_ns);
    return slow_calls.Wants(all_ns, now_ns);
  }
  // On the poller.
  MethodCounts& ForMethod(size_t index) {
    MethodCounts* const counts = of_method_[index].load(std::memory_order_relaxed);
    return counts != nullptr ? *counts : Make(index);
  }
  // From any thread. nullptr: it was not called here.
  const MethodCounts* OfMethod(size_t index) const {
    return of_method_[index].load(std::memory_order_acquire);
  }

 private:
  [[gnu::noinline, gnu::cold]] MethodCounts& Make(size_t index) {
    auto* const counts = new MethodCounts;
    of_method_[index].store(counts, std::memory_order_release);
    return *counts;
  }

  const size_t methods_;
  const std::unique_ptr<std::atomic<MethodCounts*>[]> of_method_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_METHOD_COUNTS_H_
