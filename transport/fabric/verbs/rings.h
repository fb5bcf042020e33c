#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_RINGS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_RINGS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

// How many entries the rings of queue pairs and completion queues have, and how many bytes of memory a NIC
// pins for them.
//
// The driver allocates a ring in the process, and the kernel pins it for the NIC (ib_umem_get()). So it
// counts against the memlock limit (RLIMIT_MEMLOCK), beside registered memory. The rings of a software device
// (rxe, siw) are the kernel's, and count nothing.
//
// The sizes are those of mlx5, from its source (rdma-core 691953d, providers/mlx5/verbs.c); no NIC was asked.
// Other families have other entries. Doorbell records, one page for 64 rings, are not counted.
// Thread:   any.
namespace hawser::fabric::rings {

// Grants that are possible at once on a queue pair of `send_depth`: twice what QueuePair::Grant() promises.
constexpr uint32_t GrantsMax(uint32_t send_depth) { return 2 * send_depth; }

// Places of the send queue for the BIND_MW and LOCAL_INV of `grants_max` grants by memory windows. Those that
// find none wait, see VerbsGrants.
constexpr uint32_t GrantSends(uint32_t grants_max) { return 2 * std::min<uint32_t>(grants_max, 16); }

// The send queue of an ibv_qp: the caller's work requests, those of grants by `windows`, and the last one
// (VerbsSendQueue::PostDrain()).
constexpr uint64_t SendEntries(uint32_t send_depth, bool windows) {
  return uint64_t{send_depth} + (windows ? GrantSends(GrantsMax(send_depth)) : 0) + 1;
}

// See CompletionQueueEntries(): from this index on queues are as large as they get.
constexpr size_t kLargest = 15;

// The completion queue number `index`, from 0, of a poller whose first one has `first` entries: each has
// twice the entries of the one before, because each is polled, up to 32,767. Drivers add 1 and round up to a
// power of two, so sizes are one less than that.
constexpr uint32_t CompletionQueueEntries(uint32_t first, size_t index) {
  constexpr uint64_t kMost = uint64_t{1} << 15;
  const uint64_t grown = (uint64_t{first} + 1) << std::min<size_t>(index, kLargest);
  return static_cast<uint32_t>(std::max<uint64_t>(std::min(grown, kMost), uint64_t{first} + 1) - 1);
}

struct QueuePairShape {
  uint64_t sends = 0;  // ibv_qp_cap::max_send_wr, and so on.
  uint64_t receives = 0;
  uint32_t send_sges = 1;
  uint32_t receive_sges = 1;
  uint32_t inline_bytes = 0;
};

// Bytes pinned for an RC queue pair: both queues in one buffer of whole pages.
uint64_t PinnedBytes(const QueuePairShape& shape);

// Bytes pinned for ibv_create_cq() with `entries`.
uint64_t PinnedBytesOfCompletionQueue(uint64_t entries);

}  // namespace hawser::fabric::rings

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_RINGS_H_
