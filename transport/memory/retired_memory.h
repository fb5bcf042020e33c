#ifndef HAWSER_TRANSPORT_MEMORY_RETIRED_MEMORY_H_
#define HAWSER_TRANSPORT_MEMORY_RETIRED_MEMORY_H_

#include <string.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define HAWSER_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAWSER_HAS_ASAN 1
#endif
#endif

#ifdef HAWSER_HAS_ASAN
#include <sanitizer/asan_interface.h>
#endif

#include "hawser/base/memcheck.h"

// Retired memory: a buffer that was returned to its pool, or the body of a message that is kept for the next
// call. A Reader that outlives its message points there, and would see the bytes of another call. A debug
// build (without NDEBUG) overwrites retired memory, a build with AddressSanitizer reports each use of it, as
// does valgrind's memcheck in a build with --config=memcheck (base/memcheck.h), and any other build does
// nothing. Memory that is posted to a fabric is leased, so it is not retired. The functions are static for
// the reason given there.
// Thread: that of the memory's owner.
namespace hawser::transport {

#ifdef HAWSER_HAS_ASAN
inline constexpr bool kPoisonsRetiredMemory = true;
#else
inline constexpr bool kPoisonsRetiredMemory = false;
#endif

#ifdef NDEBUG
inline constexpr bool kOverwritesRetiredMemory = false;
#else
inline constexpr bool kOverwritesRetiredMemory = true;
#endif

// The byte that overwrites retired memory. A Cap'n Proto pointer of these bytes is malformed.
inline constexpr uint8_t kRetiredByte = 0xdb;

// Bytes that are overwritten at either end of a large buffer.
inline constexpr size_t kOverwrittenMax = 4096;

// The memory may be used again; write it before you read it. Call this also before it is unmapped, so that
// the next mapping there is clean.
static inline void ReviveMemory(uint8_t* address, size_t size_bytes) {
  MarkUninitialized(address, size_bytes);
#ifdef HAWSER_HAS_ASAN
  __asan_unpoison_memory_region(address, size_bytes);
#endif
}

// Nothing uses the memory before ReviveMemory(). It may be retired already.
static inline void RetireMemory(uint8_t* address, size_t size_bytes) {
  if constexpr (kOverwritesRetiredMemory) {
    ReviveMemory(address, size_bytes);
    const size_t part = std::min(size_bytes, kOverwrittenMax);
    memset(address, kRetiredByte, part);
    memset(address + size_bytes - part, kRetiredByte, part);
  }
#ifdef HAWSER_HAS_ASAN
  __asan_poison_memory_region(address, size_bytes);
#endif
  MarkUnusable(address, size_bytes);
}

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_RETIRED_MEMORY_H_
