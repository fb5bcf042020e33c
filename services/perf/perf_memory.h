#ifndef HAWSER_SERVICES_PERF_PERF_MEMORY_H_
#define HAWSER_SERVICES_PERF_PERF_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/perf.rpc.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/server_extension.h"
#include "hawser/rpc/shared_memory.h"

namespace hawser::internal {

// The memory of a server that clients measure one-sided operations on: one for READs, one for WRITEs and one
// for atomics, each from the first request for it until Close().
// Thread:   any; MakeNext() is for one that may take its time. It is never called back with its lock held.
// Lifetime: its owner calls Close() first, and keeps it until the last handler has returned.
class PerfMemory {
 public:
  static constexpr size_t kRemoteBytes = 4 << 20;
  static constexpr size_t kAtomicBytes = 4096;
  static constexpr uint8_t kByte = 'g';  // What that for READs has.

  // Memory that could not be made is not tried for again for the time of `refusal`.
  PerfMemory(ServerExtensionHost& host, absl::Duration refusal) : host_(host), refusal_time_(refusal) {}

  // A handler's. Defers the call if the memory is not there yet; then is_wanted().
  absl::Status Share(ServerContext& context, uint8_t wanted, perf::Perf::ShareResults::Builder reply);
  bool is_wanted() const;
  // Makes one that is wanted, which maps, registers and fills it, and answers the calls that wait for it.
  void MakeNext();
  // Answers the calls that wait, and later ones, with Unavailable.
  void Close();

 private:
  struct Asking {
    Asking(DeferredCall from, perf::Perf::ShareResults::Builder into) : call(std::move(from)), reply(into) {}
    DeferredCall call;
    perf::Perf::ShareResults::Builder reply;
  };
  struct Shared {
    std::shared_ptr<const SharedMemory> memory;                // Null: it is not there yet.
    std::vector<Asking> waiting;                               // For it. Bounded by the slots of connections.
    absl::Status refusal;                                      // Why it could not be made the last time.
    absl::Duration refused_until = -absl::InfiniteDuration();  // By SteadyNow().
  };
  using ByAccess = std::map<Access, Shared>;

  ByAccess::const_iterator FindWanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ServerExtensionHost& host_;
  const absl::Duration refusal_time_;
  mutable absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  ByAccess by_access_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_SERVICES_PERF_PERF_MEMORY_H_
