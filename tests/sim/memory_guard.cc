#include "hawser/tests/sim/memory_guard.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::sim {
namespace {

constexpr uint8_t kPoison = 0xdb;

uint64_t Hash(const uint8_t* address, size_t length_bytes) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(address), length_bytes});
}

}  // namespace

bool MemoryGuard::Overlaps(const uint8_t* address, size_t length_bytes) const {
  auto next = by_start_.lower_bound(address);
  if (next != by_start_.end() && next->first < address + length_bytes) return true;
  if (next == by_start_.begin()) return false;
  const auto& [start, id] = *std::prev(next);
  return start + guards_.at(id).length_bytes > address;
}

MemoryGuard::Id MemoryGuard::Add(Guard guard) {
  by_start_.emplace(guard.address, ++last_);
  guards_.emplace(last_, std::move(guard));
  return last_;
}

MemoryGuard::Id MemoryGuard::WatchSource(const uint8_t* address, size_t length_bytes, uint32_t owner) {
  if (length_bytes == 0 || Overlaps(address, length_bytes)) return 0;
  return Add({.address = const_cast<uint8_t*>(address),
              .length_bytes = length_bytes,
              .owner = owner,
              .poisoned = false,
              .hash = Hash(address, length_bytes)});
}

MemoryGuard::Id MemoryGuard::Poison(uint8_t* address, size_t length_bytes, uint32_t owner) {
  if (length_bytes == 0 || Overlaps(address, length_bytes)) return 0;
  const Id id = Add({.address = address,
                     .length_bytes = length_bytes,
                     .owner = owner,
                     .poisoned = true,
                     .hash = 0,
                     .before = std::vector<uint8_t>(address, address + length_bytes)});
  std::memset(address, kPoison, length_bytes);
  return id;
}

void MemoryGuard::FabricWrites(uint8_t* address, const uint8_t* data, size_t length_bytes, Id own) {
  std::memcpy(address, data, length_bytes);
  if (auto it = guards_.find(own); it != guards_.end()) {
    const size_t from = static_cast<size_t>(address - it->second.address);
    it->second.written.emplace_back(from, from + length_bytes);
    return;
  }
  // This is a WRITE of the peer, or a receive that is not watched. It may change every guarded range there.
  for (auto& [id, guard] : guards_) {
    uint8_t* const from = std::max(guard.address, address);
    uint8_t* const to = std::min(guard.address + guard.length_bytes, address + length_bytes);
    if (from >= to) continue;
    if (guard.poisoned) {
      guard.written.emplace_back(from - guard.address, to - guard.address);
    } else {
      guard.hash = Hash(guard.address, guard.length_bytes);
    }
  }
}

std::string MemoryGuard::Release(Id id) {
  const auto it = guards_.find(id);
  if (it == guards_.end()) return "";
  Guard guard = std::move(it->second);
  guards_.erase(it);
  by_start_.erase(guard.address);
  if (!guard.poisoned) {
    if (Hash(guard.address, guard.length_bytes) == guard.hash) return "";
    return absl::StrCat("somebody wrote into ", guard.length_bytes,
                        " bytes that the fabric was sending from");
  }
  std::sort(guard.written.begin(), guard.written.end());
  guard.written.emplace_back(guard.length_bytes, guard.length_bytes);
  std::string found;
  size_t at = 0;
  for (const auto& [from, to] : guard.written) {
    for (size_t i = at; i < from; ++i) {
      if (guard.address[i] != kPoison && found.empty()) {
        found = absl::StrCat("somebody wrote to byte ", i, " of ", guard.length_bytes,
                             " that the fabric was to receive into");
      }
    }
    if (at < from) std::memcpy(guard.address + at, guard.before.data() + at, from - at);
    at = std::max(at, to);
  }
  return found;
}

void MemoryGuard::ReleaseAllOf(uint32_t owner) {
  std::vector<Id> ids;
  for (const auto& [id, guard] : guards_) {
    if (guard.owner == owner) ids.push_back(id);
  }
  for (const Id id : ids) {
    // A source is not hashed again: its queue pair has ended, so its memory may be in use again.
    Guard& guard = guards_.at(id);
    if (guard.poisoned) {
      Release(id);
    } else {
      by_start_.erase(guard.address);
      guards_.erase(id);
    }
  }
}

}  // namespace hawser::sim
