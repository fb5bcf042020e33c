#include "hawser/transport/read_budget.h"

#include <algorithm>
#include <utility>

#include "hawser/transport/rendezvous.h"

namespace hawser::transport {

bool ReadBudget::Take(uint64_t bytes, PullQueue* queue) {
  const bool fits = taken_bytes_ == 0 || taken_bytes_ + bytes <= bytes_max_;
  if (queue == served_) {
    (fits ? served_took_ : served_short_) = true;
  } else if (!fits || !waiting_.empty()) {
    if (std::find(waiting_.begin(), waiting_.end(), queue) == waiting_.end()) waiting_.push_back(queue);
    return false;
  }
  if (fits) taken_bytes_ += bytes;
  return fits;
}

void ReadBudget::Return(uint64_t bytes) {
  taken_bytes_ -= bytes;
  if (served_ != nullptr) return;  // From inside a turn, below; what is left over serves the next.
  while (!waiting_.empty()) {
    PullQueue* const queue = waiting_.front();
    served_ = queue;
    served_took_ = served_short_ = false;
    queue->Pump();
    if (served_short_ && !served_took_) break;                 // Stays the first.
    if (std::exchange(served_, nullptr) == nullptr) continue;  // Gone meanwhile.
    waiting_.erase(waiting_.begin());
    if (served_short_) waiting_.push_back(queue);
  }
  served_ = nullptr;
}

void ReadBudget::Forget(PullQueue* queue) {
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), queue), waiting_.end());
  if (served_ == queue) served_ = nullptr;
}

}  // namespace hawser::transport
