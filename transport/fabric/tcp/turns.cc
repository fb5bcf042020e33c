#include "hawser/transport/fabric/tcp/turns.h"

#include <utility>

namespace hawser::fabric {

void Turns::SetHost(TurnPlace& place, const PeerHost& host) {
  const bool waits = place.waits_;
  Remove(place);
  std::unique_ptr<TurnHost>& entry = hosts_[host];
  if (entry == nullptr) {
    entry = std::make_unique<TurnHost>();
    entry->key = host;
  }
  ++entry->members;
  place.host_ = entry.get();
  if (waits) Add(place);
}

void Turns::Leave(TurnPlace& place) {
  Remove(place);
  if (place.host_ == nullptr) return;
  TurnHost& host = *std::exchange(place.host_, nullptr);
  if (--host.members != 0) return;
  left_.push_back(host.key);
  if (!visiting_) EraseLeft();
}

void Turns::EraseLeft() {
  for (const PeerHost& key : left_) {
    const auto found = hosts_.find(key);
    if (found != hosts_.end() && found->second->members == 0) hosts_.erase(found);
  }
  left_.clear();
}

void Turns::MoveToFront(TurnPlace& place) {
  TurnHost& host = HostOf(place);
  if (host.first != &place) {
    place.previous_->next_ = place.next_;
    (place.next_ == nullptr ? host.last : place.next_->previous_) = place.previous_;
    place.previous_ = nullptr;
    place.next_ = host.first;
    host.first->previous_ = &place;
    host.first = &place;
  }
  if (first_ == &host) return;
  Detach(host);
  host.previous = nullptr;
  host.next = first_;
  (first_ == nullptr ? last_ : first_->previous) = &host;
  first_ = &host;
}

}  // namespace hawser::fabric
