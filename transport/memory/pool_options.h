#ifndef HAWSER_TRANSPORT_MEMORY_POOL_OPTIONS_H_
#define HAWSER_TRANSPORT_MEMORY_POOL_OPTIONS_H_

#include <cstddef>
#include <optional>

#include "absl/time/time.h"

namespace hawser::transport {

// How much memory a BufferPool (buffer_pool.h) registers, and for how long it keeps it.
struct BufferPoolOptions {
  // Most registered memory: leased, and kept for reuse; one slab of 2 MiB at least; for a Server 4
  // MiB. The reserve (see BufferPool::AcquireReserved()) of at most kReserveBytes comes on top.
  size_t limit_bytes = size_t{4} << 30;
  // Memory unused for this long, or up to half as long again, is returned to the system, except one slab of 2
  // MiB. 1 ms at least; infinite: it is kept, and goes only where other memory of the pool is wanted. Unset:
  // 4 s over TCP and 60 s over RDMA, where each return and each registration takes commands of the NIC and
  // pins or unpins all pages, so that a load that comes back within a minute should find its memory
  // registered.
  std::optional<absl::Duration> idle = std::nullopt;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_POOL_OPTIONS_H_
