#ifndef HAWSER_BASE_MEMCHECK_H_
#define HAWSER_BASE_MEMCHECK_H_

#include <cstddef>

#ifdef HAWSER_MEMCHECK
#include <valgrind/memcheck.h>
#endif

// Tells valgrind's memcheck about memory that a pool reuses, and asks it whether memory was written. Only the
// sources that --config=memcheck names (.bazelrc; tests/memcheck) are compiled with HAWSER_MEMCHECK. In all
// others, as in what ships, these functions are empty.
// Thread: that of the memory's owner.
namespace hawser {

// static: a program has sources compiled both ways, so an inline function would have two definitions.
#ifdef HAWSER_MEMCHECK
// memcheck reports any use until the next mark.
static inline void MarkUnusable(const void* address, size_t size_bytes) {
  VALGRIND_MAKE_MEM_NOACCESS(address, size_bytes);
}
// The memory may be written. memcheck reports a use of what was not.
static inline void MarkUninitialized(const void* address, size_t size_bytes) {
  VALGRIND_MAKE_MEM_UNDEFINED(address, size_bytes);
}
static inline void MarkInitialized(const void* address, size_t size_bytes) {
  VALGRIND_MAKE_MEM_DEFINED(address, size_bytes);
}
// memcheck reports it if a bit there was not written. Call it before a peer gets the bytes.
static inline void ExpectInitialized(const void* address, size_t size_bytes) {
  VALGRIND_CHECK_MEM_IS_DEFINED(address, size_bytes);
}
#else
static inline void MarkUnusable(const void*, size_t) {}
static inline void MarkUninitialized(const void*, size_t) {}
static inline void MarkInitialized(const void*, size_t) {}
static inline void ExpectInitialized(const void*, size_t) {}
#endif

}  // namespace hawser

#endif  // HAWSER_BASE_MEMCHECK_H_
