#include "hawser/transport/fabric/verbs/rings.h"

#include <bit>

namespace hawser::fabric::rings {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kBasicBlock = 64;  // MLX5_SEND_WQE_BB
constexpr uint64_t kDataSegment = 16;
constexpr uint64_t kInlineHeader = 4;
// A control segment, and the longest segments that any opcode has: those of a BIND_MW, which a queue pair
// made by ibv_create_qp() always has room for. _sq_overhead(): 16 + 48 + 64 + 64.
constexpr uint64_t kSendOverhead = 192;
constexpr uint64_t kCompletion = 64;  // get_cqe_size()

constexpr uint64_t Align(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

// mlx5_calc_send_wqe()
uint64_t SendBytes(const QueuePairShape& shape) {
  const uint64_t gathered = kSendOverhead + shape.send_sges * kDataSegment;
  const uint64_t copied =
      shape.inline_bytes == 0 ? 0 : kSendOverhead + Align(kInlineHeader + shape.inline_bytes, 16);
  return Align(std::max(gathered, copied), kBasicBlock);
}

}  // namespace

uint64_t PinnedBytes(const QueuePairShape& shape) {
  // mlx5_calc_sq_size() and mlx5_calc_rq_size()
  const uint64_t sends = std::bit_ceil(shape.sends * SendBytes(shape));
  const uint64_t receive_bytes = std::bit_ceil(std::max<uint64_t>(shape.receive_sges, 1) * kDataSegment);
  const uint64_t receives = std::max(std::bit_ceil(shape.receives) * receive_bytes, kBasicBlock);
  return Align(sends + receives, kPage);
}

// create_cq(): align_queue_size(entries + 1)
uint64_t PinnedBytesOfCompletionQueue(uint64_t entries) {
  return Align(std::bit_ceil(entries + 1) * kCompletion, kPage);
}

}  // namespace hawser::fabric::rings
