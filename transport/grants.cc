#include "hawser/transport/grants.h"

#include <utility>

#include "hawser/base/check.h"
#include "hawser/transport/port.h"
#include "hawser/transport/send_queue.h"
#include "hawser/transport/work_id.h"

namespace hawser::transport {

void Revocations::LetGo(OutgoingMessagePtr&& message, uint32_t number, Grants& grants) {
  if (grants.empty()) return sends_.KeepUntilProved(number, std::move(message));
  Start(grants, std::move(message), number);
}

void Revocations::TakeBack(Grants& grants) {
  if (!grants.empty()) Start(grants, nullptr, 0);
}

void Revocations::Start(Grants& grants, OutgoingMessagePtr message, uint32_t number) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Entry& entry = entries_[index];
  entry.message = std::move(message);
  entry.number = number;
  entry.grants_left = static_cast<uint32_t>(grants.rkeys_.size());
  const uint64_t wr_id = WorkId{port_.index(), WorkId::kRevocation, index}.Encode();
  for (uint32_t rkey : grants.rkeys_) port_.queue_pair().Revoke(rkey, wr_id);
  grants.rkeys_.clear();
}

void Revocations::OnCompletion(uint32_t index) {
  HAWSER_CHECK(index < entries_.size() && entries_[index].grants_left > 0, "revocation ", index, " of ",
               entries_.size(), " completed once too often, connection to ", port_.peer());
  Entry& entry = entries_[index];
  if (--entry.grants_left != 0) return;
  if (entry.message != nullptr) {
    sends_.KeepUntilProved(entry.number, std::move(entry.message));
  }
  free_.push_back(index);
}

void Revocations::Abandon() {
  entries_.clear();
  free_.clear();
}

}  // namespace hawser::transport
