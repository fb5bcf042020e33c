#ifndef EXAMPLES_KV_CLIENT_WORKLOAD_H_
#define EXAMPLES_KV_CLIENT_WORKLOAD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/random/bit_gen_ref.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "examples/kv/client/zipfian.h"

namespace kv {

enum class Operation { kRead, kUpdate, kInsert, kScan, kReadModifyWrite };
inline constexpr size_t kOperations = 5;
inline constexpr const char* kOperationNames[kOperations] = {"read", "update", "insert", "scan",
                                                             "read-modify-write"};

// One of YCSB's core workloads (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010).
struct Mix {
  char name;
  std::array<int, kOperations> percent;  // For each Operation.
  bool latest;                           // The newest records are the popular ones.
};

// nullptr: there is no such workload. 'a' to 'f'.
const Mix* FindMix(absl::string_view name);

// Chooses the next operation and its record. Records are numbered in the order of their insertion.
// Thread: any.
class Workload {
 public:
  // There are `records` at the start, at least 1.
  Workload(const Mix& mix, uint64_t records)
      : mix_(mix), popularity_(records), records_(records), reserved_(records), inserted_(records) {}

  Operation NextOperation(absl::BitGenRef random) const;
  uint64_t NextRecord(absl::BitGenRef random) const;  // One that has been inserted.
  uint64_t Reserve();                                 // The number for an insert.
  void Inserted(uint64_t record);                     // That insert has been answered.
  static uint64_t ScanLength(absl::BitGenRef random);

  // The key of a record. It is a hash, so that records that were inserted together are not next to each
  // other.
  static std::string Key(absl::string_view prefix, uint64_t record);

 private:
  const Mix& mix_;
  const Zipfian popularity_;
  const uint64_t records_;
  mutable absl::Mutex mutex_;
  uint64_t reserved_ ABSL_GUARDED_BY(mutex_);
  uint64_t inserted_ ABSL_GUARDED_BY(mutex_);                    // Every record below this was inserted.
  absl::flat_hash_set<uint64_t> early_ ABSL_GUARDED_BY(mutex_);  // Inserted records above `inserted_`.
};

}  // namespace kv

#endif  // EXAMPLES_KV_CLIENT_WORKLOAD_H_
