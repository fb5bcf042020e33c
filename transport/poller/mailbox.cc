#include "hawser/transport/poller/mailbox.h"

namespace hawser::transport {
namespace {

// Returns the first that did not run.
MailboxItem* RunItems(MailboxItem* first, size_t& count) {
  for (; first != nullptr && count != 0; --count) {
    MailboxItem* const next = first->next_in_mailbox;
    first->Run();
    first = next;
  }
  return first;
}

}  // namespace

void Mailbox::RunOldest(MailboxItem* left, size_t& count) {
  if (left != nullptr) {
    left_over_.store(nullptr, std::memory_order_relaxed);
    left = RunItems(left, count);
    if (left == nullptr && posted_.load(std::memory_order_relaxed) == nullptr) return;
  }
  if (left == nullptr) {
    MailboxItem* newest = posted_.exchange(nullptr, std::memory_order_acquire);
    while (newest != nullptr) {
      MailboxItem* const next = newest->next_in_mailbox;
      newest->next_in_mailbox = left;
      left = newest;
      newest = next;
    }
    left = RunItems(left, count);
  }
  if (left != nullptr) left_over_.store(left, std::memory_order_seq_cst);
}

}  // namespace hawser::transport
