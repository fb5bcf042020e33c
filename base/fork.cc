#include "hawser/base/fork.h"

#include <pthread.h>

namespace hawser {

std::atomic<uint64_t> ForkMark::generation{0};

ForkMark::ForkMark() {
  // Before the first mark is made, so that no fork() after it goes uncounted. Those before it do not matter.
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  made_in_ = generation.load(std::memory_order_relaxed);
}

}  // namespace hawser
