#ifndef HAWSER_RPC_SERVER_HOST_COUNTS_H_
#define HAWSER_RPC_SERVER_HOST_COUNTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/peer_table.h"

namespace hawser::internal {

// Counts what the clients of each host have of something that is bounded, for one host and for all together.
// What a host has is not taken from it again, so the fuller it is, the less one more host may get: of one
// half of all, while `left` of it are left, a host has at most left * left / half. The Nth of many hosts that
// take all they can thus gets about half / (N * N), and not all that is there. The other half is for hosts
// that have next to nothing: kEachMin are there for each of total_max / (2 * kEachMin) hosts, whatever others
// have. What is kept is bounded by what is counted, not by the number of addresses.
// Thread:   under its owner's lock.
class HostCounts {
 public:
  static constexpr uint64_t kEachMin = 2;

  // `what` is counted: "tickets for shared memory". Outlives it.
  HostCounts(absl::string_view what, uint64_t per_host_max, uint64_t total_max)
      : what_(what), per_host_max_(per_host_max), total_max_(total_max) {}

  // One more. ResourceExhausted: nothing was counted, and the text says which bound was met.
  absl::Status Add(const PeerHost& host);
  void Remove(const PeerHost& host, uint64_t count);

  uint64_t total() const { return total_; }
  // Hosts that have some.
  size_t hosts() const { return counts_.size(); }

 private:
  // How many one host may have now, as far as the others are concerned.
  uint64_t Share() const;

  const absl::string_view what_;
  const uint64_t per_host_max_;
  const uint64_t total_max_;
  uint64_t total_ = 0;
  absl::flat_hash_map<PeerHost, uint64_t> counts_;  // None is 0.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_HOST_COUNTS_H_
