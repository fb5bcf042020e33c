#ifndef HAWSER_BASE_PEER_TURNS_H_
#define HAWSER_BASE_PEER_TURNS_H_

#include <list>
#include <memory>

#include "hawser/base/peer_table.h"

namespace hawser {

// Peers that wait for something that is done for one of them at a time. Networks take turns, in a network its
// parts, and so on down to the hosts (PeerHost::Network()); of a host's peers the one that has waited longest
// is first. So numbers gain a host nothing, nor a network many hosts. A host that begins to wait has its turn
// behind the hosts that wait already, and before any of those has a second one.
// Thread:   that of its owner.
// Lifetime: entries belong to the owner, which removes each one before destroying it.
class PeerTurns {
  struct Node;  // A network, or a host.

 public:
  // The owner derives its record of a peer from this.
  class Entry {
   public:
    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    bool waits() const { return host_ != nullptr; }

   protected:
    ~Entry() = default;

   private:
    friend class PeerTurns;
    Node* host_ = nullptr;
    std::list<Entry*>::iterator place_;
  };

  PeerTurns();
  ~PeerTurns();
  PeerTurns(const PeerTurns&) = delete;
  PeerTurns& operator=(const PeerTurns&) = delete;

  // `entry` must not wait yet.
  void Add(Entry& entry, const PeerHost& host);
  // Does nothing if `entry` does not wait.
  static void Remove(Entry& entry);
  // Removes and returns the peer whose turn it is; null: none waits.
  Entry* TakeNext();
  bool empty() const;

 private:
  const std::unique_ptr<Node> all_;
};

}  // namespace hawser

#endif  // HAWSER_BASE_PEER_TURNS_H_
