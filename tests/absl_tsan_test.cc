// ThreadSanitizer sees no race in accesses that abseil's synchronization orders. With --config=tsan each of
// these tests fails without third_party/absl_tsan.cc. In the other configurations they pass trivially.

#include <deque>
#include <thread>

#include "absl/status/status.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace {

// Runs `write` in another thread while `read` runs here.
template <typename Write, typename Read>
void Together(Write write, Read read) {
  std::thread writer(write);
  read();
  writer.join();
}

TEST(AbslTsanTest, MutexOrdersItsSections) {
  absl::Mutex mu;
  int sum = 0;
  const auto add = [&] {
    for (int i = 0; i < 1000; ++i) {
      absl::MutexLock lock(&mu);
      ++sum;
    }
  };
  Together(add, add);
  EXPECT_EQ(sum, 2000);
}

TEST(AbslTsanTest, TryLockOrdersWhenItSucceeds) {
  absl::Mutex mu;
  int sum = 0;
  const auto add = [&] {
    for (int i = 0; i < 1000;) {
      if (!mu.TryLock()) continue;
      ++sum;
      ++i;
      mu.Unlock();
    }
  };
  Together(add, add);
  EXPECT_EQ(sum, 2000);
}

TEST(AbslTsanTest, ReadersComeAfterTheWriterBeforeThem) {
  absl::Mutex mu;
  int value = 0;
  const auto write = [&] {
    for (int i = 0; i < 1000; ++i) {
      absl::WriterMutexLock lock(&mu);
      ++value;
    }
  };
  int last = 0;
  Together(write, [&] {
    while (last < 1000) {
      absl::ReaderMutexLock lock(&mu);
      last = value;
    }
  });
  EXPECT_EQ(last, 1000);
}

TEST(AbslTsanTest, LockWhenComesAfterWhatMadeItsConditionTrue) {
  absl::Mutex mu;
  bool ready = false;
  int value = 0;
  const auto write = [&] {
    value = 1;
    absl::MutexLock lock(&mu);
    ready = true;
  };
  Together(write, [&] {
    absl::MutexLock lock(&mu, absl::Condition(&ready));
    EXPECT_EQ(value, 1);
  });
}

TEST(AbslTsanTest, AwaitComesAfterWhatMadeItsConditionTrue) {
  absl::Mutex mu;
  bool ready = false;
  int value = 0;
  const auto write = [&] {
    value = 1;
    absl::MutexLock lock(&mu);
    ready = true;
  };
  Together(write, [&] {
    absl::MutexLock lock(&mu);
    while (!mu.AwaitWithTimeout(absl::Condition(&ready), absl::Milliseconds(1))) continue;
    mu.Await(absl::Condition(&ready));
    EXPECT_EQ(value, 1);
  });
}

// The conditions are compiled with the sanitizer, and called by abseil, with the lock held, on either thread.
TEST(AbslTsanTest, ConditionReadsWhatTheMutexProtects) {
  absl::Mutex mu;
  int asked = 0;
  int answered = 0;
  const auto is_asked = [&] { return asked > answered; };
  const auto is_answered = [&] { return answered == asked; };
  const auto answer = [&] {
    for (int i = 0; i < 100; ++i) {
      absl::MutexLock lock(&mu, absl::Condition(&is_asked));
      ++answered;
    }
  };
  Together(answer, [&] {
    absl::MutexLock lock(&mu);
    for (int i = 0; i < 50; ++i) {
      ++asked;
      mu.Await(absl::Condition(&is_answered));
      ++asked;
      while (!mu.AwaitWithTimeout(absl::Condition(&is_answered), absl::Milliseconds(1))) continue;
    }
  });
  EXPECT_EQ(answered, 100);
}

// abseil notes the order in which mutexes are locked, in one growing table, until they are destroyed.
TEST(AbslTsanTest, ManyMutexesEndOnTwoThreadsAtOnce) {
  const auto lock_and_destroy = [] {
    absl::Mutex outer;
    std::deque<absl::Mutex> inner(5000);
    absl::MutexLock outer_lock(&outer);
    for (absl::Mutex& mu : inner) absl::MutexLock inner_lock(&mu);
  };
  Together(lock_and_destroy, lock_and_destroy);
}

TEST(AbslTsanTest, CondVarWaitComesAfterTheSignal) {
  absl::Mutex mu;
  absl::CondVar changed;
  bool ready = false;
  int value = 0;
  const auto write = [&] {
    value = 1;
    absl::MutexLock lock(&mu);
    ready = true;
    changed.Signal();
  };
  Together(write, [&] {
    absl::MutexLock lock(&mu);
    while (!ready) changed.WaitWithTimeout(&mu, absl::Milliseconds(1));
    EXPECT_EQ(value, 1);
  });
}

TEST(AbslTsanTest, NotificationComesAfterNotify) {
  absl::Notification waited, polled, waited_with_deadline;
  int value = 0;
  const auto write = [&] {
    value = 1;
    waited.Notify();
    value = 1;
    polled.Notify();
    value = 1;
    waited_with_deadline.Notify();
  };
  Together(write, [&] {
    while (!polled.HasBeenNotified()) std::this_thread::yield();
    waited.WaitForNotification();
    while (!waited_with_deadline.WaitForNotificationWithDeadline(absl::Now() + absl::Milliseconds(1)))
      continue;
    EXPECT_EQ(value, 1);
  });
}

TEST(AbslTsanTest, BlockingCounterComesAfterEveryDecrement) {
  absl::BlockingCounter left(1);
  int value = 0;
  const auto write = [&] {
    value = 1;
    left.DecrementCount();
  };
  Together(write, [&] {
    left.Wait();
    EXPECT_EQ(value, 1);
  });
}

TEST(AbslTsanTest, CopiesOfAStatusMayDieInAnyThread) {
  for (int i = 0; i < 100; ++i) {
    absl::Status mine = absl::UnavailableError("no answer");
    absl::Status theirs = mine;
    const auto copy_and_drop = [](absl::Status* status) {
      const absl::Status copy = *status;
      *status = absl::OkStatus();
    };
    Together([&] { copy_and_drop(&theirs); }, [&] { copy_and_drop(&mine); });
    EXPECT_TRUE(mine.ok() && theirs.ok());
  }
}

}  // namespace
