#ifndef HAWSER_BASE_PEER_TABLE_H_
#define HAWSER_BASE_PEER_TABLE_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "hawser/base/socket_address.h"

namespace hawser {

// The host that a peer is counted under: its IPv4 address, or the first 64 bits of its IPv6 address, because
// one machine can take any address of such a network (RFC 7421). A link-local address counts as a whole. A
// value.
class PeerHost {
 public:
  PeerHost() = default;
  explicit PeerHost(const SocketAddress& address);

  // The networks that the host is a part of, from the widest to the host itself. An IPv6 host has three: its
  // first 48 bits and its first 56 bits, since one customer of a provider gets a network of that size (RFC
  // 6177), and itself. An IPv4 host and a link-local one have themselves alone.
  static constexpr size_t kNetworksMax = 3;
  size_t networks() const { return has_networks_ ? kNetworksMax : 1; }
  // 0: the widest; networks() - 1: the host itself.
  PeerHost Network(size_t index) const;

  friend auto operator<=>(const PeerHost&, const PeerHost&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const PeerHost& host) {
    return H::combine(std::move(state), host.family_, host.scope_, host.bytes_);
  }

 private:
  int family_ = 0;
  uint32_t scope_ = 0;
  std::array<uint8_t, 16> bytes_ = {};
  bool has_networks_ = false;
};

// Peers that have yet to show that they mean it, by host and in the order of their arrival. When there are
// too many of them, it names the one that makes room, so that a flood from one host never costs a peer of
// another host its place, nor a flood from many hosts of one network (PeerHost::Network()) a peer of another
// network.
// Thread:   that of its owner, or under its owner's lock.
// Lifetime: entries belong to the owner, which removes each one before destroying it.
class PeerTable {
  struct Node;  // A network, or a host.

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
    Node* host_ = nullptr;
    uint64_t number_ = 0;  // Counts arrivals, from 1 on. 0: in no table.
    // In each network that it is a part of.
    std::array<std::list<Entry*>::iterator, PeerHost::kNetworksMax> places_;
  };

  PeerTable(size_t max, size_t per_host_max);
  ~PeerTable();

  // The entry that has to go before one from `host` is added: the oldest of `host` if it has its share
  // already; OldestOfTheMost() if the table is full; null if there is room.
  Entry* WhichMakesRoom(const PeerHost& host) const;
  // The oldest entry of the host with the most, in the network with the most; null: the table is empty.
  // `*count`: what the widest network has that the entry is a part of.
  Entry* OldestOfTheMost(size_t* count) const;

  void Add(Entry& entry, const PeerHost& host);
  // Does nothing if `entry` is not in the table.
  void Remove(Entry& entry);

  size_t size() const { return size_; }

 private:
  // The greatest of the parts of a network is the one with the most entries; of several, the one with the
  // oldest entry.
  struct Rank {
    size_t count;
    uint64_t oldest;
    const Node* node;
    bool operator<(const Rank& other) const {
      return count != other.count ? count < other.count : oldest > other.oldest;
    }
  };
  static Rank RankOf(const Node& node);
  const Node* Find(const PeerHost& host) const;

  const size_t max_;
  const size_t per_host_max_;
  size_t size_ = 0;
  uint64_t arrivals_ = 0;
  const std::unique_ptr<Node> all_;
};

}  // namespace hawser

#endif  // HAWSER_BASE_PEER_TABLE_H_
