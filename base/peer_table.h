#ifndef HAWSER_BASE_PEER_TABLE_H_
#define HAWSER_BASE_PEER_TABLE_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "hawser/base/socket_address.h"

namespace hawser {

// The host that a peer is counted under: its IPv4 address, or the first 64 bits of its IPv6 address, because
// one machine can take any address of such a network (RFC 7421). A link-local address counts as a whole. A
// value.
class PeerHost {
 public:
  PeerHost() = default;
  explicit PeerHost(const SocketAddress& address);

  friend auto operator<=>(const PeerHost&, const PeerHost&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const PeerHost& host) {
    return H::combine(std::move(state), host.family_, host.scope_, host.bytes_);
  }

 private:
  int family_ = 0;
  uint32_t scope_ = 0;
  std::array<uint8_t, 16> bytes_ = {};
};

// Peers that have yet to show that they mean it, by host and in the order of their arrival. When there are
// too many of them, it names the one that makes room, so that a flood from one host never costs a peer of
// another host its place.
// Thread:   that of its owner, or under its owner's lock.
// Lifetime: entries belong to the owner, which removes each one before destroying it.
class PeerTable {
 public:
  // The owner derives its record of a peer from this.
  class Entry {
   public:
    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    bool in_table() const { return number_ != 0; }

   protected:
    ~Entry() = default;

   private:
    friend class PeerTable;
    PeerHost host_;
    uint64_t number_ = 0;  // Counts arrivals, from 1 on. 0: in no table.
    std::list<Entry*>::iterator place_;
  };

  PeerTable(size_t max, size_t per_host_max);

  // Which entry has to go before one from `host` is added: the oldest of `host` if it has its share already;
  // the oldest of the host with the most entries if the table is full; null if there is room.
  Entry* WhichMakesRoom(const PeerHost& host) const;
  // The oldest of the host with the most entries; null: the table is empty. `*count`: what that host has.
  Entry* OldestOfTheMost(size_t* count) const;

  void Add(Entry& entry, const PeerHost& host);
  // Does nothing if `entry` is not in the table.
  void Remove(Entry& entry);

  size_t size() const { return size_; }

 private:
  struct Host {
    std::list<Entry*> entries;  // Oldest first.
  };
  // The greatest is the host with the most entries; of several, the one with the oldest entry.
  struct Rank {
    size_t count;
    uint64_t oldest;
    PeerHost host;
    bool operator<(const Rank& other) const {
      return count != other.count ? count < other.count : oldest > other.oldest;
    }
  };
  static Rank RankOf(const PeerHost& host, const Host& entries);

  const size_t max_;
  const size_t per_host_max_;
  size_t size_ = 0;
  uint64_t arrivals_ = 0;
  absl::flat_hash_map<PeerHost, Host> hosts_;
  absl::btree_set<Rank> ranks_;  // One of each host.
};

}  // namespace hawser

#endif  // HAWSER_BASE_PEER_TABLE_H_
