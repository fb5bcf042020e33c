#include "hawser/transport/read_budget.h"

#include <algorithm>
#include <cstddef>

#include "hawser/transport/rendezvous.h"

namespace hawser::transport {

bool ReadBudget::Take(uint64_t bytes, PullQueue* queue) {
  if (taken_bytes_ != 0 && taken_bytes_ + bytes > bytes_max_) {
    if (std::find(waiting_.begin(), waiting_.end(), queue) == waiting_.end()) waiting_.push_back(queue);
    return false;
  }
  taken_bytes_ += bytes;
  return true;
}

void ReadBudget::Return(uint64_t bytes) {
  taken_bytes_ -= bytes;
  // Each of those that wait now gets one turn; who is still short lines up again behind the others.
  for (size_t turns = waiting_.size(); turns > 0 && !waiting_.empty() && taken_bytes_ < bytes_max_; --turns) {
    PullQueue* const queue = waiting_.front();
    waiting_.erase(waiting_.begin());
    queue->Pump();
  }
}

void ReadBudget::Forget(PullQueue* queue) {
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), queue), waiting_.end());
}

}  // namespace hawser::transport
