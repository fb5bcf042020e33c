#include "hawser/transport/fabric/tcp/atomic.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace hawser::fabric {
namespace {

void CopyBytes(uint8_t* to, const uint8_t* from, size_t length_bytes) {
  for (size_t i = 0; i < length_bytes; ++i) {
    to[i] = std::atomic_ref<uint8_t>(const_cast<uint8_t&>(from[i])).load(std::memory_order_relaxed);
  }
}

void StoreBytes(uint8_t* to, const uint8_t* from, size_t length_bytes) {
  for (size_t i = 0; i < length_bytes; ++i) {
    std::atomic_ref<uint8_t>(to[i]).store(from[i], std::memory_order_relaxed);
  }
}

}  // namespace

uint64_t ExecuteAtomic(FrameKind atomic, uint8_t* word, const uint64_t* operands) {
  const std::atomic_ref<uint64_t> value(*reinterpret_cast<uint64_t*>(word));
  static_assert(std::atomic_ref<uint64_t>::is_always_lock_free, "the processor's do not know our locks");
  if (atomic == FrameKind::kFetchAdd) return value.fetch_add(operands[0]);
  uint64_t before = operands[0];
  value.compare_exchange_strong(before, operands[1]);  // Sets `before` if it differs.
  return before;
}

void CopyWords(uint8_t* to, const uint8_t* from, size_t length_bytes) {
  const size_t front = std::min(RestOfWord(from), length_bytes);
  CopyBytes(to, from, front);
  size_t at = front;
  for (; length_bytes - at >= kAtomicBytes; at += kAtomicBytes) {
    auto& word = const_cast<uint64_t&>(*reinterpret_cast<const uint64_t*>(from + at));
    const uint64_t value = std::atomic_ref<uint64_t>(word).load(std::memory_order_relaxed);
    std::memcpy(to + at, &value, sizeof(value));
  }
  CopyBytes(to + at, from + at, length_bytes - at);
}

void StoreWords(uint8_t* to, const uint8_t* from, size_t length_bytes) {
  size_t at = std::min(RestOfWord(to), length_bytes);
  StoreBytes(to, from, at);
  for (; length_bytes - at >= kAtomicBytes; at += kAtomicBytes) {
    uint64_t value;
    std::memcpy(&value, from + at, sizeof(value));
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(to + at)).store(value, std::memory_order_relaxed);
  }
  StoreBytes(to + at, from + at, length_bytes - at);
}

}  // namespace hawser::fabric
