#ifndef HAWSER_TRANSPORT_FABRIC_TCP_ATOMIC_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_ATOMIC_H_

#include <cstddef>
#include <cstdint>

#include "hawser/transport/fabric/tcp/frame.h"

// The atomics that a peer asks for, as the responder executes them: atomic with those of all other peers, and
// with the processor's.
namespace hawser::fabric {

inline constexpr uint32_t kAtomicBytes = 8;

inline constexpr bool IsAtomic(FrameKind kind) {
  return kind == FrameKind::kCompareSwap || kind == FrameKind::kFetchAdd;
}

// The payload of its frame.
inline constexpr uint32_t OperandBytes(FrameKind atomic) {
  return atomic == FrameKind::kCompareSwap ? 2 * kAtomicBytes : kAtomicBytes;
}

// `word`: kAtomicBytes, aligned. `operands`: as in the frame. Returns what was there before.
uint64_t ExecuteAtomic(FrameKind atomic, uint8_t* word, const uint64_t* operands);

// Copies memory that others change meanwhile, each aligned word of 8 bytes whole. `to` need not be aligned.
void CopyWords(uint8_t* to, const uint8_t* from, size_t length_bytes);

// The same into memory that others read and change meanwhile. `from` need not be aligned. A word at an end,
// of which only a part is stored, gets that byte by byte.
void StoreWords(uint8_t* to, const uint8_t* from, size_t length_bytes);

// How many bytes from `at` on belong to a word that begins before it.
inline size_t RestOfWord(const uint8_t* at) { return -reinterpret_cast<uintptr_t>(at) % kAtomicBytes; }
// How many bytes before `end` belong to a word that ends behind it.
inline size_t BytesOfLastWord(const uint8_t* end) { return reinterpret_cast<uintptr_t>(end) % kAtomicBytes; }

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_ATOMIC_H_
