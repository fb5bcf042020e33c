#ifndef HAWSER_RPC_CLIENT_REMOTE_COUNTS_H_
#define HAWSER_RPC_CLIENT_REMOTE_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/lane/lane_operation.h"

namespace hawser::internal {

// Counts the one-sided operations of this process that have ended, by kind and status.
// Thread:   any.
// Lifetime: for ever. A child after fork() goes on counting from what its parent had.
class RemoteCounts {
 public:
  using Kind = transport::LaneOperation::Kind;
  static constexpr size_t kKinds = static_cast<size_t>(Kind::kFetchAdd) + 1;
  static constexpr size_t kCodes = static_cast<size_t>(absl::StatusCode::kUnauthenticated) + 1;

  static RemoteCounts& Process();

  void Add(Kind kind, absl::StatusCode code) {
    counts_[static_cast<size_t>(kind)][static_cast<size_t>(code)].fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t Of(Kind kind, absl::StatusCode code) const {
    return counts_[static_cast<size_t>(kind)][static_cast<size_t>(code)].load(std::memory_order_relaxed);
  }
  // "read", "fetch-and-add"
  static absl::string_view NameOf(Kind kind);

 private:
  std::array<std::array<std::atomic<uint64_t>, kCodes>, kKinds> counts_ = {};
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_REMOTE_COUNTS_H_
