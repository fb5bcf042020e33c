#ifndef HAWSER_TESTS_SIM_SIM_COMPLETION_QUEUE_H_
#define HAWSER_TESTS_SIM_SIM_COMPLETION_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "hawser/tests/sim/network.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {

// Thread: as CompletionQueue; the caller holds the network's lock for functions marked "locked".
class SimCompletionQueue final : public fabric::CompletionQueue {
 public:
  SimCompletionQueue(Network& network, uint32_t depth) : network_(network), depth_(depth) {}

  size_t Poll(absl::Span<fabric::Completion> completions) override;
  // Calls of Poll() so far. Locked.
  uint64_t polls() const { return polls_; }
  void WaitUntil(int64_t when_ns) override;
  void Wake() override;

  // ---- For queue pairs and listeners. Locked.

  // A completion, and a callback that tells its queue pair that the application has polled it.
  struct Entry {
    fabric::Completion completion;
    std::function<void()> on_polled;  // Locked; not called if the queue pair was destroyed.
    // Of a SEND that may be offered (ConnectionHandler::TakeSend()), while `lock` is unlocked. Null: it may
    // not be any more. True: it was taken, and there is no completion.
    std::function<bool(std::unique_lock<std::mutex>* lock)> offer = nullptr;
  };
  // The entry can be polled from `when_ns` on. Entries of one queue are polled in the order of their posts.
  void PushAt(int64_t when_ns, Entry entry);
  // The first Poll() at whose start `due` holds calls `news`, without the lock, unless `still` does not hold
  // any more.
  void PushNews(
      std::function<bool()> still, std::function<void()> news,
      std::function<bool()> due = [] { return true; });

 private:
  struct News {
    std::function<bool()> still;
    std::function<bool()> due;
    std::function<void()> tell;
    bool is_due() const { return !still() || due(); }
  };
  bool HasWork() const;

  Network& network_;
  const uint32_t depth_;
  std::deque<Entry> ready_;
  std::deque<News> news_;
  bool woken_ = false;
  bool polling_ = false;
  uint64_t polls_ = 0;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_SIM_COMPLETION_QUEUE_H_
