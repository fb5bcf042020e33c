#ifndef HAWSER_BASE_FUTEX_H_
#define HAWSER_BASE_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace hawser {

// futex(2) within one process. std::atomic has the same without a limit in time; a std::condition_variable,
// which has that, takes a mutex on both sides and some five times the instructions.
//
// Thread: any.

// Sleeps if `word` is `expected`: until FutexWake(), for `patience` (of CLOCK_MONOTONIC, may be infinite), or
// for no reason.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration patience);

// Wakes one thread that sleeps, if any.
void FutexWake(std::atomic<uint32_t>& word);

}  // namespace hawser

#endif  // HAWSER_BASE_FUTEX_H_
