#include "hawser/bench/hand_off.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/base/futex.h"
#include "hawser/base/mutex.h"

namespace hawser::bench {
namespace {

using Word = std::atomic<uint32_t>;

constexpr uint32_t kUnset = 0, kSet = 1, kAwaited = 2;

void SleepUntilSet(Word& word) {
  uint32_t unset = kUnset;
  if (!word.compare_exchange_strong(unset, kAwaited, std::memory_order_acquire)) return;
  while (word.load(std::memory_order_acquire) == kAwaited)
    FutexWait(word, kAwaited, absl::InfiniteDuration());
}

void Set(Word& word) {
  if (word.exchange(kSet, std::memory_order_acq_rel) == kAwaited) FutexWake(word);
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
      filled_.store(kUnset, std::memory_order_relaxed);
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
  Word filled_{kUnset};
};

}  // namespace

double HandOffRate(int threads, int count) {
  Queue queue;
  std::vector<Word> words(static_cast<size_t>(threads));
  std::atomic<int> left{count};
  Word go{kUnset};
  std::vector<std::thread> sleepers;
  for (Word& word : words) {
    sleepers.emplace_back([&] {
      go.wait(kUnset);
      while (left.fetch_sub(1, std::memory_order_relaxed) > 0) {
        word.store(kUnset, std::memory_order_relaxed);
        queue.Put(word);
        SleepUntilSet(word);
      }
    });
  }
  const absl::Time start = absl::Now();
  go = kSet;
  go.notify_all();
  queue.Empty(count);
  for (std::thread& sleeper : sleepers) sleeper.join();
  return count / absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace hawser::bench
