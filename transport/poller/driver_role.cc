// Which thread drives a poller, and why no wake-up is lost
//
// THE PROBLEM. One thread at a time handles the completions, the posted items, the timers and the news of
// free memory of a poller. If the thread that waits for an answer polls for it itself, no thread has to be
// woken, so a waiting thread drives. If no thread waits, or many do, the poller's own thread drives. A driver
// stops when its answer is there, or when another thread takes over. What was posted must run all the same,
// and a driver that finds nothing to do sleeps.
//
// WHICH THREAD IS ON THE POLLER (PollerHold) is a matter of one turn: free, held, or held and awaited. Only
// the thread that holds the poller touches its connections. A thread that posts tries to hold it, runs some
// of what is posted (kItemsOfPosterMax), and leaves. If it cannot hold it, the holder finds the item: a
// posting thread looks at the mailbox after it has left, the driver in each turn, before it sleeps and after
// EndDrive(). ~Poller() need not look, because no other thread posts any more. A driver that finds the poller
// held looks a few times, then sets "awaited" and sleeps until the holder leaves.
//
// WHICH THREAD DRIVES (this file) lasts for many turns. It has the role of the driver, which mutex_ guards:
//
//   a thread waits     It drives until its event is set, then calls Leave(). Meanwhile the own thread rests
//                      until it is notified. While calls follow each other, it looks after each kLinger
//                      whether a new drive has begun.
//   no driver          After a waiting thread, for at most two kLinger: calls follow each other, so the own
//                      thread leaves driving to the next one. Posting threads run their own items.
//                      Completions, timers and news of memory wait. The own thread does not linger if there
//                      is async interest, if items were handed over, or if many_wait_ is set.
//   own thread drives  At other times. It stops if yield_ is set: by a thread that wants to drive, or Stop().
//
//   Without Start() there is no own thread. A simulation calls PollOnce().
//
//   A thread that begins to wait drives if there is no driver. If the own thread drives, it sets yield_ and
//   wakes it. It then sleeps on its own event, in waiting_, until that is set or nudged, or its time is over.
//   A driver that stops passes the role on (PassOnDriving()): it nudges the first in waiting_, or notifies
//   the own thread.
//
//   together_ counts up for a thread that begins to wait beside others, and down for one that begins alone.
//   At kTogetherMax many_wait_ is set, and at 0 it is cleared. While it is set, only the own thread begins to
//   drive. A waiting thread that drives at that time goes on until its event is set, which may take minutes.
//   Each other waiting thread sleeps on its event. While the own thread drives and is awake, posting threads
//   leave their items to it.
//
// WHETHER THE DRIVER SLEEPS is in DriverSleep. WakeDriver() ends its sleep, or else the next one, so a
// wake-up between its last look and its sleep counts. If there is no driver, it ends the first sleep of the
// next one.
//
// WHY NO WAKE-UP IS LOST. Two threads each store one variable and then load what the other has stored. All of
// this is seq_cst, so at least one of the two sees the store of the other:
//
//   one thread                                          the other
//   posts: Mailbox, then TryTake()                      leaves the poller: Release(), then Mailbox
//   posts: Mailbox, then own_thread_drives_             own thread: EndDrive(), then Mailbox
//   posts, or leaves items: Mailbox, then asleep()      driver: Announce(), then Mailbox
//   sets a timer: SetNextTimerOfPoster(), EndsAfter()   driver: Announce(), then StillEndsAt()
//   sets an event: its state, then its sleeper          driver: the sleeper, then the state
//
// The steps of the first four rows are in poller.cc: Post(), RunMailboxUnlessHeld() and Drive(). Those of the
// last are in wait_event.cc, Set() and StartSleep().
//
// Release and acquire do not suffice, even on x86, where a load may pass an earlier store to another
// variable. Here it did, and an item that was posted while the holder left was seen by neither. Weaker orders
// are enough for the rest. Items are taken with acquire. many_wait_ is loaded relaxed by a thread that posts,
// and own_thread_drives_ = true is stored relaxed: until it is seen, that thread tries to hold the poller.
// The driver's own SetNextTimer() is relaxed, because Announce() is called by the same thread.
//
// These need no such pair:
//
// - "Awaited". The driver changes held to awaited, the holder exchanges what is there for free and notifies
//   if it was awaited. It is one variable, whose order decides. Only the driver sets it (and ~Poller(), when
//   there is none), so its wait cannot last into the hold of a later thread.
// - What stores and then always calls WakeDriver(): Await() when it sets yield_, Stop(), news of memory
//   (MemoryNews::OnMemoryMayBeFree()), and the flush of a cache (MessageCache::SetWake()). One that finds
//   yield_ set already, or earlier news that are not delivered yet, omits the call: the first one has made or
//   makes it. The driver loads yield_ without mutex_.
// - A nudge. It is made under mutex_. The sleeper sets kAwaited, and FutexWait() returns if the state is
//   anything else by then. But the event may be set too, which overwrites the nudge, or the time may be over,
//   before the nudged thread drives. So Await() ends with PassOnDriving() if there is no driver.
// - waiting_count_. It is changed without mutex_, so PassOnDriving() may see a thread that has not locked
//   mutex_ yet, and wake none. If there is still no driver when that thread has locked it, it drives,
//   notifies the own thread, or passes the role on at the end of Await(). The own thread rests for such a
//   thread, too.
// - together_ and own_thread_drives_ in Await(), where a thread may sleep without having locked mutex_. The
//   argument is at WaitsWithoutMutex().
// - async_interest_. AddAsyncInterest() adds first, then locks mutex_ and notifies. If the own thread, which
//   loads it under mutex_, missed the addition, it has locked mutex_ before and is in its wait by then, or it
//   drives. If a waiting thread drives, its PassOnDriving() sees the addition later, under mutex_.
//
// All else is under mutex_, and own_thread_wake_ is notified under it. PassOnDriving() omits the notification
// if the own thread looks again within kLinger.
//
// WHAT WAS TRIED, AND IS WRONG
//
// - To hold the poller with an exchange: it can overwrite "awaited", and the driver sleeps on.
// - To spin while another thread holds the poller: if that one was preempted, a time slice is lost, and under
//   SCHED_FIFO it never runs again.
// - To let a posting thread run whatever others post meanwhile: there is no bound. Now kItemsOfPosterMax is
//   one (poller.cc).
// - To sleep without a second look at the next timer: another thread may have set an earlier one in between.
// - To leave the own thread asleep after the last waiting thread unless something asks for it
//   (async_interest_): it never drove again, and pings were not answered.
// - To let many waiting threads drive in turns: each drives until its own answer comes, then wakes another
//   one that has none yet, and threads that post contend for the poller with the driver.
// - To let each of many waiting threads take mutex_ twice: they wait for the mutex, too.

#include "hawser/transport/poller/driver_role.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/time.h"

namespace hawser::transport {
namespace {

// How often the poller's own thread looks whether waiting threads still begin to drive. If none has since the
// last look, the own thread drives: at most two intervals after the last of them has left. At 5 ms the looks
// took 0.3 % of the time of calls on one core.
constexpr std::chrono::milliseconds kLinger(20);

// Several threads wait at once if threads begin to wait so many times more often beside another one than
// alone.
constexpr int kTogetherMax = 24;

}  // namespace

bool DriverRole::Await(WaitEvent& event, absl::FunctionRef<int64_t()> until_ns) {
  absl::Duration patience = absl::InfiniteDuration();
  int64_t end_ns = 0;  // 0: not asked for yet.
  const auto sleep = [&] {
    if (end_ns == 0) end_ns = until_ns();
    if (end_ns != kNever) patience = absl::Nanoseconds(end_ns - environment_.NowNs());
    event.AwaitSetOrNudged(patience);
    if (end_ns != kNever && !event.is_set()) patience = absl::Nanoseconds(end_ns - environment_.NowNs());
  };
  const auto over = [&] { return event.is_set() || patience <= absl::ZeroDuration(); };
  if (WaitsWithoutMutex(waiting_count_.fetch_add(1, std::memory_order_seq_cst))) {
    while (!over()) sleep();
    waiting_count_.fetch_sub(1, std::memory_order_seq_cst);
    return false;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  NoteHowManyWait();
  while (!over()) {
    if (!has_driver_ && !many_wait_) {
      has_driver_ = true;
      handed_over_ = false;
      ++waiting_drives_;
      return true;
    }
    if (!has_driver_) own_thread_wake_.notify_one();
    if (own_thread_has_role_ && !many_wait_ && !yield_.exchange(true)) poller_.WakeDriver();
    waiting_.MoveToBack(&event);
    lock.unlock();
    sleep();
    lock.lock();
    event.Unlink();
  }
  waiting_count_.fetch_sub(1, std::memory_order_seq_cst);
  // This thread may have been nudged, or counted by a driver that has left.
  if (!has_driver_) PassOnDriving();
  return false;
}

void DriverRole::Leave() {
  std::lock_guard<std::mutex> lock(mutex_);
  has_driver_ = false;
  waiting_count_.fetch_sub(1, std::memory_order_seq_cst);
  PassOnDriving();
}

bool DriverRole::AwaitAsOwnThread() {
  std::unique_lock<std::mutex> lock(mutex_);
  has_own_thread_ = true;
  if (own_thread_has_role_) {  // Until now.
    has_driver_ = own_thread_has_role_ = false;
    seen_drives_ = waiting_drives_;
    PassOnDriving();
  }
  while (!stopping_) {
    const bool others_drive = has_driver_ || (waiting_count_ > 0 && !many_wait_);
    const bool calls_follow = std::exchange(seen_drives_, waiting_drives_) != waiting_drives_;
    if (!others_drive && (!calls_follow || handed_over_ || many_wait_ ||
                          async_interest_.load(std::memory_order_relaxed) > 0)) {
      has_driver_ = own_thread_has_role_ = true;
      handed_over_ = false;
      yield_.store(false);
      return true;
    }
    if (calls_follow) {
      // Calls tend to follow each other: their thread is likely to drive again soon.
      own_thread_wake_.wait_for(lock, kLinger);
    } else {
      // A long wait, during which no other thread needs to drive. Another may follow.
      own_thread_rests_ = true;
      own_thread_wake_.wait(lock);
      own_thread_rests_ = false;
      seen_drives_ = waiting_drives_ - 1;
    }
  }
  return false;
}

// A thread that waits alone drives: its answer then wakes no thread. If several threads wait, each would
// drive until its own answer comes, and then wake another one that has no answer yet. So the poller's own
// thread drives for them.
void DriverRole::NoteHowManyWait() {
  if (!has_own_thread_) return;
  const int step = waiting_count_.load(std::memory_order_seq_cst) > 1 ? 1 : -1;
  const int together = std::clamp(together_.load(std::memory_order_relaxed) + step, 0, kTogetherMax);
  if (together == kTogetherMax) many_wait_ = true;
  if (together == 0) many_wait_ = false;
  together_.store(together, std::memory_order_seq_cst);
}

// While many threads wait, each only sleeps: taking mutex_ twice, they would wait for each other. `others`:
// how many waited when this one was counted. One that waits alone goes on, to be noted.
//
// This thread is counted before it loads together_. So at most one NoteHowManyWait() has not seen it and has
// yet to store: from now on together_ stays at kTogetherMax - 1 or more, and many_wait_ stays true.
// AwaitAsOwnThread(), if the own thread stops for an older yield_, lets it drive again before it unlocks
// mutex_.
bool DriverRole::WaitsWithoutMutex(int others) const {
  return others > 0 && together_.load(std::memory_order_seq_cst) == kTogetherMax &&
         own_thread_drives_.load(std::memory_order_seq_cst);
}

// Another waiting thread continues driving. If there is none, or there are several, the poller's own thread
// does, now or a little later. It is notified only if it would not check soon enough by itself, because a
// notification costs a system call.
void DriverRole::PassOnDriving() {
  if (!waiting_.empty() && !many_wait_) {
    waiting_.front()->Nudge();
  } else if (!waiting_.empty() ||
             (waiting_count_ == 0 &&
              (own_thread_rests_ || handed_over_ || async_interest_.load(std::memory_order_relaxed) > 0))) {
    own_thread_wake_.notify_one();
  }
}

void DriverRole::HandOverItems() {
  std::lock_guard<std::mutex> lock(mutex_);
  handed_over_ = true;
  if (!has_driver_) own_thread_wake_.notify_one();
}

// There was none, and is some now.
void DriverRole::OnAsyncInterest() {
  std::lock_guard<std::mutex> lock(mutex_);
  own_thread_wake_.notify_one();
}

void DriverRole::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    yield_.store(true);
    own_thread_wake_.notify_all();
  }
  poller_.WakeDriver();
}

}  // namespace hawser::transport
