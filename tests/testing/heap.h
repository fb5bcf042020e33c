#ifndef HAWSER_TESTS_TESTING_HEAP_H_
#define HAWSER_TESTS_TESTING_HEAP_H_

#include <cstdint>

namespace hawser {

// What operator new gave out in this whole program so far, on every thread. Who links this library has its
// own operator new.
// Thread:   any.
uint64_t HeapAllocations();
uint64_t HeapAllocatedBytes();

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_HEAP_H_
