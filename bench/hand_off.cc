#include "hawser/bench/hand_off.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/base/futex.h"
#include "hawser/base/mutex.h"

namespace hawser::bench {
namespace {

using Word = std::atomic<uint32_t>;

void SleepUntilSet(Word& word) {
  while (word.load(std::memory_order_acquire) == 0) FutexWait(word, 0, absl::InfiniteDuration());
}

void Set(Word& word) {
  word.store(1, std::memory_order_release);
  FutexWake(word);
}

class Queue {
 public:
  void Put(Word& waiting) {
    bool was_empty;
    {
      MutexLock lock(mutex_);
      was_empty = waiting_.empty();
      waiting_.push_back(&waiting);
    }
    if (was_empty) Set(filled_);
  }

  // Until it has woken `count` times.
  void Empty(int count) {
    std::vector<Word*> woken;
    while (count > 0) {
      SleepUntilSet(filled_);
      filled_.store(0, std::memory_order_relaxed);
      {
        MutexLock lock(mutex_);
        woken.swap(waiting_);
      }
      for (Word* const word : woken) Set(*word);
      count -= static_cast<int>(woken.size());
      woken.clear();
    }
  }

 private:
  Mutex mutex_;
  std::vector<Word*> waiting_;
  Word filled_{0};
};

}  // namespace

double HandOffRate(int threads, int count) {
  Queue queue;
  std::vector<Word> words(static_cast<size_t>(threads));
  std::atomic<int> left{count};
  Word go{0};
  std::vector<std::thread> sleepers;
  for (Word& word : words) {
    sleepers.emplace_back([&] {
      go.wait(0);
      while (left.fetch_sub(1, std::memory_order_relaxed) > 0) {
        word.store(0, std::memory_order_relaxed);
        queue.Put(word);
        SleepUntilSet(word);
      }
    });
  }
  const absl::Time start = absl::Now();
  go = 1;
  go.notify_all();
  queue.Empty(count);
  for (std::thread& sleeper : sleepers) sleeper.join();
  return count / absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace hawser::bench
