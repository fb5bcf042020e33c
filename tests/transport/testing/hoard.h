#ifndef HAWSER_TESTS_TRANSPORT_TESTING_HOARD_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_HOARD_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "hawser/transport/memory/buffer_pool.h"

namespace hawser::transport {

// Leases all free memory of pools, so that other users get none.
class Hoard {
 public:
  Hoard() = default;
  Hoard(BufferPool& pool, size_t size_bytes) { Take(pool, size_bytes); }

  // Leases buffers of this size until there are no more.
  void Take(BufferPool& pool, size_t size_bytes) {
    absl::StatusOr<Lease> lease = pool.Acquire(size_bytes);
    for (; lease.ok(); lease = pool.Acquire(size_bytes)) leases_.push_back(*std::move(lease));
  }
  // Returns the last `count`, or all if there are fewer.
  void Drop(size_t count) {
    for (; count > 0 && !leases_.empty(); --count) leases_.pop_back();
  }
  void DropAll() { leases_.clear(); }

 private:
  std::vector<Lease> leases_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_HOARD_H_
