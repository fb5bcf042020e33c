#ifndef HAWSER_BASE_TICKS_H_
#define HAWSER_BASE_TICKS_H_

#include <cstdint>

namespace hawser {

// The processor's counter of time, of some constant rate: one instruction, where reading a clock takes fifty.
// 0 where there is none that programs can read.
inline uint64_t Ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return 0;
#endif
}

}  // namespace hawser

#endif  // HAWSER_BASE_TICKS_H_
