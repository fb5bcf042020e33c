#ifndef HAWSER_TRANSPORT_FABRIC_TCP_TURNS_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_TURNS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hawser/base/peer_table.h"

namespace hawser::fabric {

class Turns;
class TurnPlace;

// The places of one host that wait for their turns.
struct TurnHost {
  PeerHost key;
  TurnHost* next = nullptr;
  TurnHost* previous = nullptr;
  TurnPlace* first = nullptr;  // Null: none waits, and this is not in the ring.
  TurnPlace* last = nullptr;
  size_t waiting = 0;
  size_t members = 0;  // Places of this host, waiting or not.
  uint64_t visit = 0;  // The last Turns::TakeEach() that came to it.
};

// What takes turns: a connection.
class TurnPlace {
 public:
  TurnPlace(const TurnPlace&) = delete;
  TurnPlace& operator=(const TurnPlace&) = delete;

 protected:
  TurnPlace() = default;
  ~TurnPlace() = default;

 private:
  friend class Turns;
  TurnPlace* next_ = nullptr;
  TurnPlace* previous_ = nullptr;
  TurnHost* host_ = nullptr;  // Null: not known.
  bool waits_ = false;
};

// The connections of a completion queue that have something to deliver, in the order of their turns. Hosts
// (PeerHost) take turns, then the connections of one host: a host with a hundred busy connections leaves a
// connection of another host every second turn.
// Thread:   that of the completion queue.
// Lifetime: a place leaves (Leave()) before it is destroyed.
class Turns {
 public:
  Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // From now on `place` counts for `host`. Once at most.
  void SetHost(TurnPlace& place, const PeerHost& host);
  void Leave(TurnPlace& place);

  // At the end of the line of its host. No effect if it waits.
  void Add(TurnPlace& place) {
    if (place.waits_) return;
    TurnHost& host = HostOf(place);
    place.waits_ = true;
    place.next_ = nullptr;
    place.previous_ = host.last;
    (host.last == nullptr ? host.first : host.last->next_) = &place;
    host.last = &place;
    if (host.waiting++ == 0) Append(host);
  }
  // No effect if it does not wait.
  void Remove(TurnPlace& place) {
    if (!place.waits_) return;
    TurnHost& host = HostOf(place);
    (place.previous_ == nullptr ? host.first : place.previous_->next_) = place.next_;
    (place.next_ == nullptr ? host.last : place.next_->previous_) = place.previous_;
    place.waits_ = false;
    if (--host.waiting == 0) Detach(host);
  }
  // Null: none waits. The turn of its host is over, too.
  TurnPlace* TakeFirst() {
    if (first_ == nullptr) return nullptr;
    TurnHost& host = *first_;
    TurnPlace* const place = host.first;
    Remove(*place);
    if (first_ == &host && last_ != &host) MoveToBack(host);
    return place;
  }
  // `place`, which waits, is the next one.
  void MoveToFront(TurnPlace& place);
  // Takes each one that waits now, once, host by host, and leaves them in their order. `visit` may Add() the
  // one that it is called with, or any, and any may Leave().
  template <typename Visit>
  void TakeEach(const Visit& visit) {
    ++visits_;
    visiting_ = true;
    // Hosts that were visited are behind all others.
    while (first_ != nullptr && first_->visit != visits_) {
      TurnHost& host = *first_;
      host.visit = visits_;
      for (size_t count = host.waiting; count > 0 && first_ == &host; --count) {
        TurnPlace& place = *host.first;
        Remove(place);
        visit(place);
      }
      if (first_ == &host) MoveToBack(host);
    }
    visiting_ = false;
    if (!left_.empty()) EraseLeft();
  }

  // The one that was added last, if it waits. Null: none waits.
  const TurnPlace* last() const { return last_ == nullptr ? nullptr : last_->last; }
  bool empty() const { return first_ == nullptr; }

 private:
  TurnHost& HostOf(TurnPlace& place) { return place.host_ != nullptr ? *place.host_ : unknown_; }
  void Append(TurnHost& host) {
    host.next = nullptr;
    host.previous = last_;
    (last_ == nullptr ? first_ : last_->next) = &host;
    last_ = &host;
  }
  void Detach(TurnHost& host) {
    (host.previous == nullptr ? first_ : host.previous->next) = host.next;
    (host.next == nullptr ? last_ : host.next->previous) = host.previous;
  }
  void MoveToBack(TurnHost& host) {
    Detach(host);
    Append(host);
  }
  void EraseLeft();

  TurnHost* first_ = nullptr;  // The ring of hosts of which some wait.
  TurnHost* last_ = nullptr;
  TurnHost unknown_;
  absl::flat_hash_map<PeerHost, std::unique_ptr<TurnHost>> hosts_;  // Those with members.
  uint64_t visits_ = 0;
  bool visiting_ = false;       // TakeEach() may look at a host that has no members any more.
  std::vector<PeerHost> left_;  // These had none meanwhile.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_TURNS_H_
