#include "hawser/base/peer_table.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"

namespace hawser {

PeerHost::PeerHost(const SocketAddress& address) : family_(address.family()) {
  if (family_ == AF_INET) {
    std::memcpy(bytes_.data(), &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 4);
  } else if (family_ == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address.get());
    const bool whole = IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
    std::memcpy(bytes_.data(), &v6.sin6_addr, whole ? 16 : 8);
    if (whole) scope_ = v6.sin6_scope_id;
    has_networks_ = !whole;
  }
}

PeerHost PeerHost::Network(size_t index) const {
  constexpr size_t kBytes[kNetworksMax] = {6, 7, 8};
  PeerHost network = *this;
  if (has_networks_) std::fill(network.bytes_.begin() + kBytes[index], network.bytes_.end(), uint8_t{0});
  return network;
}

struct PeerTable::Node {
  Node* parent = nullptr;
  PeerHost network;
  std::list<Entry*> entries;                                   // Those of all its parts, oldest first.
  absl::flat_hash_map<PeerHost, std::unique_ptr<Node>> parts;  // None: it is a host.
  absl::btree_set<Rank> ranks;                                 // One of each part.
};

PeerTable::PeerTable(size_t max, size_t per_host_max)
    : max_(std::max<size_t>(max, 1)),
      per_host_max_(std::max<size_t>(per_host_max, 1)),
      all_(std::make_unique<Node>()) {}

PeerTable::~PeerTable() = default;

PeerTable::Rank PeerTable::RankOf(const Node& node) {
  return {node.entries.size(), node.entries.front()->number_, &node};
}

PeerTable::Entry* PeerTable::OldestOfTheMost(size_t* count) const {
  *count = 0;
  if (size_ == 0) return nullptr;
  *count = all_->ranks.rbegin()->count;
  const Node* node = all_.get();
  while (!node->ranks.empty()) node = node->ranks.rbegin()->node;
  return node->entries.front();
}

const PeerTable::Node* PeerTable::Find(const PeerHost& host) const {
  const Node* node = all_.get();
  for (size_t i = 0; i < host.networks(); ++i) {
    const auto found = node->parts.find(host.Network(i));
    if (found == node->parts.end()) return nullptr;
    node = found->second.get();
  }
  return node;
}

PeerTable::Entry* PeerTable::WhichMakesRoom(const PeerHost& host) const {
  const Node* const found = Find(host);
  if (found != nullptr && found->entries.size() >= per_host_max_) return found->entries.front();
  size_t count = 0;
  return size_ >= max_ ? OldestOfTheMost(&count) : nullptr;
}

void PeerTable::Add(Entry& entry, const PeerHost& host) {
  entry.number_ = ++arrivals_;
  Node* node = all_.get();
  for (size_t i = 0; i < host.networks(); ++i) {
    const PeerHost network = host.Network(i);
    std::unique_ptr<Node>& part = node->parts[network];
    if (part == nullptr) {
      part = std::make_unique<Node>();
      part->parent = node;
      part->network = network;
    } else {
      node->ranks.erase(RankOf(*part));
    }
    entry.places_[i] = part->entries.insert(part->entries.end(), &entry);
    node->ranks.insert(RankOf(*part));
    node = part.get();
  }
  entry.host_ = node;
  ++size_;
}

void PeerTable::Remove(Entry& entry) {
  if (!entry.in_table()) return;
  size_t depth = 0;
  for (const Node* node = entry.host_; node->parent != nullptr; node = node->parent) ++depth;
  for (Node* node = entry.host_; node->parent != nullptr;) {
    Node* const parent = node->parent;
    parent->ranks.erase(RankOf(*node));
    node->entries.erase(entry.places_[--depth]);
    if (node->entries.empty()) {
      const PeerHost network = node->network;
      parent->parts.erase(network);
    } else {
      parent->ranks.insert(RankOf(*node));
    }
    node = parent;
  }
  entry.number_ = 0;
  --size_;
}

}  // namespace hawser
