#include "hawser/base/peer_table.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace hawser {

PeerHost::PeerHost(const SocketAddress& address) : family_(address.family()) {
  if (family_ == AF_INET) {
    std::memcpy(bytes_.data(), &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 4);
  } else if (family_ == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address.get());
    const bool whole = IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
    std::memcpy(bytes_.data(), &v6.sin6_addr, whole ? 16 : 8);
    if (whole) scope_ = v6.sin6_scope_id;
  }
}

PeerTable::PeerTable(size_t max, size_t per_host_max)
    : max_(std::max<size_t>(max, 1)), per_host_max_(std::max<size_t>(per_host_max, 1)) {}

PeerTable::Rank PeerTable::RankOf(const PeerHost& host, const Host& entries) {
  return {entries.entries.size(), entries.entries.front()->number_, host};
}

PeerTable::Entry* PeerTable::OldestOfTheMost(size_t* count) const {
  *count = 0;
  if (ranks_.empty()) return nullptr;
  const Rank& greatest = *ranks_.rbegin();
  *count = greatest.count;
  return hosts_.find(greatest.host)->second.entries.front();
}

PeerTable::Entry* PeerTable::WhichMakesRoom(const PeerHost& host) const {
  const auto found = hosts_.find(host);
  if (found != hosts_.end() && found->second.entries.size() >= per_host_max_) {
    return found->second.entries.front();
  }
  size_t count = 0;
  return size_ >= max_ ? OldestOfTheMost(&count) : nullptr;
}

void PeerTable::Add(Entry& entry, const PeerHost& host) {
  Host& of_host = hosts_[host];
  if (!of_host.entries.empty()) ranks_.erase(RankOf(host, of_host));
  entry.host_ = host;
  entry.number_ = ++arrivals_;
  entry.place_ = of_host.entries.insert(of_host.entries.end(), &entry);
  ranks_.insert(RankOf(host, of_host));
  ++size_;
}

void PeerTable::Remove(Entry& entry) {
  if (!entry.in_table()) return;
  const auto found = hosts_.find(entry.host_);
  ranks_.erase(RankOf(entry.host_, found->second));
  found->second.entries.erase(entry.place_);
  entry.number_ = 0;
  --size_;
  if (found->second.entries.empty()) {
    hosts_.erase(found);
  } else {
    ranks_.insert(RankOf(found->first, found->second));
  }
}

}  // namespace hawser
