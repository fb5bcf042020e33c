#ifndef HAWSER_TRANSPORT_POLLER_DRIVER_ROLE_H_
#define HAWSER_TRANSPORT_POLLER_DRIVER_ROLE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/poller/wait_event.h"
#include "hawser/transport/sharing/poller_services.h"

namespace hawser::transport {

// Which thread drives a poller: one that waits for its own event, the poller's own thread, or none; and
// where the other threads that wait sleep meanwhile. How a thread then drives is Poller::Drive(). The essay
// is in driver_role.cc.
// Thread:   as said for each method.
// Lifetime: part of its Poller.
class DriverRole {
 public:
  // Both outlive it. It calls only WakeDriver() of `poller`.
  DriverRole(PollerServices& poller, Environment& environment) : poller_(poller), environment_(environment) {}
  DriverRole(const DriverRole&) = delete;
  DriverRole& operator=(const DriverRole&) = delete;

  // ---- A thread that waits.

  // Waits as Poller::WaitFor() says. True: no other thread drives, so this one does from now on, until
  // `event` is set. The caller calls Leave() after its last turn. False: `event` is set, or the time is over.
  bool Await(WaitEvent& event, absl::FunctionRef<int64_t()> until_ns);
  void Leave();

  // ---- The poller's own thread.

  // If it drove, it does so no more. Blocks until it is to drive. False: it is to end, after Stop().
  bool AwaitAsOwnThread();
  // While it drives: it is to call AwaitAsOwnThread() again, soon.
  bool own_thread_is_to_stop() const { return yield_.load(std::memory_order_acquire); }

  // ---- The driver, before its first turn and after its last. After EndDrive() it looks at the mailbox.

  void BeginDrive(bool is_own_thread) { own_thread_drives_.store(is_own_thread, std::memory_order_relaxed); }
  void EndDrive() { own_thread_drives_.store(false, std::memory_order_seq_cst); }

  // ---- From any thread.

  // Many threads post, and then wait: they do not contend for the poller while its own thread drives and is
  // awake, which takes what they post together. It looks at the mailbox once more after it has said that it
  // sleeps, or drives no more.
  bool OwnThreadTakesItems() const {
    return many_wait_.load(std::memory_order_relaxed) && own_thread_drives_.load(std::memory_order_seq_cst);
  }
  // This thread has left items in the mailbox for the thread that drives, which is awake, or for the next one
  // that does: the poller's own thread, if there is no other.
  void HandOverItems();
  // See Poller::AddAsyncInterest().
  void AddAsyncInterest(int delta) {
    if (async_interest_.fetch_add(delta, std::memory_order_relaxed) == 0 && delta > 0) [[unlikely]]
      OnAsyncInterest();
  }
  // Ends the own thread, which it wakes.
  void Stop();

 private:
  [[gnu::noinline]] void OnAsyncInterest();
  void PassOnDriving();
  void NoteHowManyWait();
  bool WaitsWithoutMutex(int others) const;

  PollerServices& poller_;
  Environment& environment_;

  std::atomic<int> async_interest_{0};

  // Guards what follows, unless it says otherwise. It is not an absl::Mutex: see base/mutex.h.
  std::mutex mutex_;
  bool has_driver_ = false;
  // The driver is the own thread, from AwaitAsOwnThread() to the next one. In between, while it drives,
  // own_thread_drives_ is true.
  bool own_thread_has_role_ = false;
  bool own_thread_rests_ = false;  // It sleeps until it is notified.
  bool has_own_thread_ = false;
  bool handed_over_ = false;  // A thread that posted has left items to the next one that drives.
  bool stopping_ = false;
  std::atomic<int> waiting_count_{0};  // Threads in Await(), or that drive since. Changed without mutex_.
  uint64_t waiting_drives_ = 0;        // How often a waiting thread became the driver.
  // waiting_drives_ when the own thread last looked. After a rest it is one less.
  uint64_t seen_drives_ = 0;
  // How often of late a thread began to wait beside others, less those that did alone. Changed under mutex_.
  std::atomic<int> together_{0};
  std::atomic<bool> many_wait_{false};  // Then the poller's own thread drives. Changed under mutex_.
  // Changed by the driver, without mutex_. Beside many_wait_, because each thread that posts loads both.
  std::atomic<bool> own_thread_drives_{false};
  std::atomic<bool> yield_{false};  // The own thread is to step back, or to end.
  IntrusiveList<WaitEvent, ForDriver> waiting_;
  std::condition_variable own_thread_wake_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_DRIVER_ROLE_H_
