#ifndef HAWSER_TRANSPORT_POLLER_MAILBOX_H_
#define HAWSER_TRANSPORT_POLLER_MAILBOX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hawser::transport {

// Work that another thread posts to a poller. Intrusive, so that posting allocates nothing. The poller owns
// it from Poller::Post() until it calls Run(), once, on the poller.
class MailboxItem {
 public:
  virtual void Run() = 0;

  MailboxItem* next_in_mailbox = nullptr;  // The mailbox's.

 protected:
  ~MailboxItem() = default;
};

// Calls `run` of its owner.
template <typename Owner, void (Owner::*run)()>
class MemberItem final : public MailboxItem {
 public:
  explicit MemberItem(Owner* owner) : owner_(owner) {}
  void Run() override { (owner_->*run)(); }

 private:
  Owner* const owner_;
};

// What other threads have posted to a poller, which has not run it yet. It runs in the order of posting.
// Thread:   as said for each method.
// Lifetime: part of its Poller.
// The memory orders are part of how no item is forgotten: see driver_role.cc.
class Mailbox {
 public:
  // From any thread. The poller may run `item`, and it may be gone, before this returns.
  void Add(MailboxItem* item) {
    item->next_in_mailbox = posted_.load(std::memory_order_relaxed);
    while (!posted_.compare_exchange_weak(item->next_in_mailbox, item, std::memory_order_seq_cst,
                                          std::memory_order_relaxed)) {
    }
  }

  // From any thread.
  bool HasItems() const {
    return posted_.load(std::memory_order_seq_cst) != nullptr ||
           left_over_.load(std::memory_order_seq_cst) != nullptr;
  }

  // On the poller: runs at most `count` items, the oldest first, and subtracts those it ran from `count`.
  // False: there was none.
  bool Run(size_t& count) {
    MailboxItem* const left_over = left_over_.load(std::memory_order_relaxed);
    if (left_over == nullptr && posted_.load(std::memory_order_relaxed) == nullptr) return false;
    RunOldest(left_over, count);
    return true;
  }
  bool RunAll() {
    size_t count = SIZE_MAX;
    return Run(count);
  }

 private:
  // `left`: left_over_. If it is null, posted_ is not.
  void RunOldest(MailboxItem* left, size_t& count);

  std::atomic<MailboxItem*> posted_{nullptr};  // Newest first.
  // Taken out of posted_ by a thread that did not run them all; oldest first. Changed on the poller.
  std::atomic<MailboxItem*> left_over_{nullptr};
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_MAILBOX_H_
