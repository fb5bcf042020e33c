#ifndef HAWSER_TESTS_TESTING_HEAP_H_
#define HAWSER_TESTS_TESTING_HEAP_H_

#include <cstdint>

namespace hawser {

// The allocations of operator new so far, in the whole program and on every thread. A program that links this
// library has the operator new of this library.
// Thread:   any.
uint64_t HeapAllocations();
uint64_t HeapAllocatedBytes();

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_HEAP_H_
