#ifndef HAWSER_RPC_INTERNAL_OUTGOING_CALLS_H_
#define HAWSER_RPC_INTERNAL_OUTGOING_CALLS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "hawser/observe/histogram.h"
#include "hawser/rpc/internal/method_counts.h"
#include "hawser/rpc/method.h"
#include "hawser/transport/poller.h"

namespace hawser::internal {

// The calls that this process makes, by target and method, since it began: channels come and go, the counts stay.
// Thread: any.
class OutgoingCalls {
 public:
  // Different targets, and methods of one target; what is beyond counts as the one called kOther.
  static constexpr size_t kTargetsMax = 1000;
  static constexpr size_t kMethodsMax = 256;
  static constexpr char kOther[] = "(other)";
  // The target of calls to the clients of a server (ServerContext::peer()).
  static constexpr char kClients[] = "(clients)";

  // The calls to one target over the channels of one poller.
  // Thread: Add(): on the poller. The rest: any.
  class Target {
   public:
    Target() = default;
    ~Target();
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;

    // A call has ended with `code`, after `ns`.
    void Add(const Method& method, absl::StatusCode code, int64_t ns) {
      OfMethod* of = recent_[PlaceOf(method)].load(std::memory_order_relaxed);
      if (of == nullptr || of->interface_id != method.interface_id || of->ordinal != method.ordinal)
          [[unlikely]] {
        of = &Find(method);
      }
      of->ended[StatusIndex(code)].Add();
      of->latency.Add(ns);
    }

   private:
    friend class OutgoingCalls;

    struct OfMethod : EndedCalls {
      uint64_t interface_id = 0;
      uint16_t ordinal = 0;
      std::string name = kOther;
      bool is_other = true;  // Of all methods beyond kMethodsMax.
      OfMethod* next = nullptr;
    };
    // So many methods are found at once; of those that share a place the latest.
    static constexpr size_t kRecent = 8;

    static size_t PlaceOf(const Method& method) { return (method.interface_id + method.ordinal) % kRecent; }
    [[gnu::noinline, gnu::cold]] OfMethod& Find(const Method& method);

    std::array<std::atomic<OfMethod*>, kRecent> recent_ = {};
    std::atomic<OfMethod*> first_{nullptr};      // Of a list that only grows, at its front.
    size_t methods_ = 0;                         // On the poller.
    const transport::Poller* poller_ = nullptr;  // Guarded by OutgoingCalls::mutex_.
  };

  struct Totals {
    std::string target;
    std::string method;
    uint64_t interface_id = 0;
    uint16_t ordinal = 0;
    EndedTotals ended;
  };

  // Those of this process: a child made by fork() begins with none.
  static OutgoingCalls& Process();

  // For one channel to `target` on `poller`, which holds it while it lives.
  std::shared_ptr<Target> To(const std::string& target, const transport::Poller& poller);

  // By target and method, the first `totals_max` by target and name.
  std::vector<Totals> Look(size_t totals_max, uint64_t& left_out) const;

 private:
  mutable absl::Mutex mutex_;
  // One for each poller that has, or had, channels to the target; one that nobody holds goes to the next poller.
  std::map<std::string, std::vector<std::shared_ptr<Target>>> targets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_INTERNAL_OUTGOING_CALLS_H_
