#ifndef HAWSER_BASE_COUNT_H_
#define HAWSER_BASE_COUNT_H_

#include <atomic>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#define HAWSER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAWSER_THREAD_SANITIZER 1
#endif
#endif
#ifndef HAWSER_THREAD_SANITIZER
#define HAWSER_THREAD_SANITIZER 0
#endif

namespace hawser {

// A counter that one thread at a time increments, and any thread reads. It costs no locked instruction.
class Count {
 public:
  void Add(uint64_t more = 1) {
#if defined(__x86_64__) && !HAWSER_THREAD_SANITIZER
    // gcc makes three instructions of the other form. Readers never see a part of an aligned word.
    asm("addq %1, %0" : "+m"(value_) : "er"(more));
#else
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
#endif
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace hawser

#endif  // HAWSER_BASE_COUNT_H_
