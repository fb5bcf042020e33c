#ifndef HAWSER_BASE_MEMCHECK_H_
#define HAWSER_BASE_MEMCHECK_H_

#include <cstddef>

#ifdef HAWSER_MEMCHECK
#include <valgrind/memcheck.h>
#endif

// What valgrind's memcheck is told, and asked, of memory that was not just allocated: a buffer of a pool, which has the
// bytes of its last use. Only the sources that `--config=memcheck` names are built with it (.bazelrc; tests/memcheck);
// elsewhere, as in what ships, all of this is nothing.
// Thread: that of the memory's owner.
namespace hawser {

// Static: a program has sources of both kinds.
#ifdef HAWSER_MEMCHECK
// Any use is an error, until one of the next two.
static inline void MarkUnusable(const void* address, size_t size_bytes) {
  VALGRIND_MAKE_MEM_NOACCESS(address, size_bytes);
}
// May be written, and says nothing before that.
static inline void MarkUninitialized(const void* address, size_t size_bytes) {
  VALGRIND_MAKE_MEM_UNDEFINED(address, size_bytes);
}
static inline void MarkInitialized(const void* address, size_t size_bytes) {
  VALGRIND_MAKE_MEM_DEFINED(address, size_bytes);
}
// An error if a bit there was not written: a peer is about to get it.
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
