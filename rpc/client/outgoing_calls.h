#ifndef HAWSER_RPC_CLIENT_OUTGOING_CALLS_H_
#define HAWSER_RPC_CLIENT_OUTGOING_CALLS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/serving/method_counts.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

// The calls that this process makes, by target and method, since it began: channels come and go, the counts
// stay.
// Thread: any.
class OutgoingCalls {
 public:
  // Different targets. At one of these limits the one that has been without channels for longest makes room
  // for a new one: its calls are those of kOther from then on. If all have channels, a further target is
  // kOther.
  static constexpr size_t kTargetsMax = 1000;
  // Methods, those of each target and each poller counted apart: some 2 KiB each. What is beyond is the
  // method kOther.
  static constexpr size_t kMethodsMax = 8192;
  static constexpr char kOther[] = "(other)";
  // The target of calls to the clients of a server (ServerContext::peer()).
  static constexpr char kClients[] = "(clients)";

  // The calls to one target over the channels of one poller.
  // Thread: Add(): on the poller. The rest: any.
  class Target {
   public:
    explicit Target(std::atomic<size_t>& methods_of_all) : methods_of_all_(methods_of_all) {}
    ~Target();
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;

    // A call has ended with `code`, after `ns`.
    void Add(const Method& method, absl::StatusCode code, int64_t ns) {
      OfMethod* of = recent_[PlaceOf(method)];
      if (of == nullptr || of->interface_id != method.interface_id || of->ordinal != method.ordinal)
          [[unlikely]] {
        of = &Find(method);
      }
      of->calls.ended[StatusIndex(code)].Add();
      of->calls.latency.Add(ns);
    }

   private:
    friend class OutgoingCalls;

    struct OfMethod {
      uint64_t interface_id = 0;
      uint16_t ordinal = 0;
      std::string name = kOther;
      OfMethod* next = nullptr;
      EndedCalls calls;
    };
    // So many methods are found without a look into `by_id_`; two of the same place by turns are not. Few,
    // since idle channels have them, too.
    static constexpr size_t kPlaces = 8;

    static size_t PlaceOf(const Method& method) { return (method.interface_id + method.ordinal) % kPlaces; }
    [[gnu::noinline, gnu::cold]] OfMethod& Find(const Method& method);
    OfMethod& New();

    // Methods of all targets.
    std::atomic<size_t>& methods_of_all_;
    std::atomic<OfMethod*> first_{nullptr};      // The list only grows, at its front.
    std::atomic<int> channels_{0};               // Added with OutgoingCalls::mutex_ locked.
    const transport::Poller* poller_ = nullptr;  // Guarded by OutgoingCalls::mutex_.

    // ---- On the poller.
    std::array<OfMethod*, kPlaces> recent_ = {};
    absl::flat_hash_map<std::pair<uint64_t, uint16_t>, OfMethod*> by_id_;
    OfMethod* other_ = nullptr;
  };

  // By which one channel counts its calls. Empty, it has none. It may be destroyed on any thread, after its
  // last Add(), and in a child after fork().
  class Counting {
   public:
    Counting() = default;
    Counting(Counting&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
    Counting& operator=(Counting&& other) noexcept {
      std::swap(target_, other.target_);
      return *this;
    }
    ~Counting() {
      // So that the next poller sees all that this one has written.
      if (target_ != nullptr) target_->channels_.fetch_sub(1, std::memory_order_release);
    }

    Target* operator->() const { return target_; }
    explicit operator bool() const { return target_ != nullptr; }

   private:
    friend class OutgoingCalls;
    explicit Counting(Target& target) : target_(&target) {}

    Target* target_ = nullptr;
  };

  struct Totals {
    std::string target;
    std::string method;
    uint64_t interface_id = 0;
    uint16_t ordinal = 0;
    EndedTotals ended;
  };
  struct View {
    std::vector<Totals> totals;  // By target and method. Targets that have channels come first.
    uint64_t left_out = 0;       // Pairs of target and method beyond the limit.
    uint64_t calls = 0;          // Sum over all targets and methods.
    uint64_t failed = 0;         // Those of them that did not end with OK.
  };

  // Those of this process: a child made by fork() begins with none.
  static OutgoingCalls& Process();

  // For one channel to `target` on `poller`.
  Counting To(const std::string& target, const transport::Poller& poller);

  View Look(size_t totals_max) const;

 private:
  struct OfPollers {
    // One for each poller that has, or had, channels to the target; one without channels goes to the next
    // poller.
    std::vector<std::shared_ptr<Target>> targets;
    uint64_t used = 0;  // The number of the last To() for it.
  };

  static bool HasChannels(const OfPollers& of_pollers);
  // Makes the calls of a target without channels those of kOther. False: there is none.
  bool MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<size_t> methods_{0};
  mutable absl::Mutex mutex_;
  std::map<std::string, OfPollers> targets_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  EndedTotals without_target_ ABSL_GUARDED_BY(mutex_);  // See MakeRoom().
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_OUTGOING_CALLS_H_
