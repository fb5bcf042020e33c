#include "hawser/rpc/server/admission.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"

namespace hawser::internal {
namespace {

// The most connections that have not sent a message yet. Each takes its receives (152 KiB by default while it
// is busy) and about 40 KiB more; an idle one over TCP takes 16 KiB in all. At 1,000 connections a second
// from one host, each client there still has a second to send its first message before it is displaced.
constexpr size_t kNewcomersMax = 4096;
constexpr size_t kNewcomersPerHostMax = 1024;

// Receives may take three quarters of a pool. The rest is for messages.
uint64_t ReceivesMax(uint64_t limit_bytes) { return limit_bytes / 4 * 3; }

// When receives take more than this, the server closes newcomers, so that the next client finds room.
uint64_t NearlyAll(uint64_t receives_max_bytes) { return receives_max_bytes / 8 * 7; }

// The receives of one host. A client that has sent a message makes no room, and a host with many of them
// would keep all others out. One connection more than NearlyAll() is always within it, so that a host's
// newcomers make room before the host is refused, also in a pool for a few connections.
uint64_t HostMax(uint64_t receives_max_bytes, uint64_t connection_bytes) {
  return std::max(receives_max_bytes / 16 * 15, NearlyAll(receives_max_bytes) + connection_bytes);
}

// A connection over TCP takes a file descriptor. The application and the next host need some, too. All hosts
// together get three quarters of them, and one host three quarters of that; newcomers get a quarter and an
// eighth.
uint64_t FilesMax() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT32_MAX;
  return limit.rlim_cur;
}

}  // namespace

Admission::Admission(const ServerOptions& options)
    : connections_max_(options.connections_max),
      connections_per_host_max_(options.connections_per_host_max),
      newcomers_(std::min<size_t>(kNewcomersMax, FilesMax() / 4),
                 std::min<size_t>(kNewcomersPerHostMax, FilesMax() / 8)) {}

absl::Status Admission::Admit(const Place& place) {
  if (places_ >= connections_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has ", places_,
                     " connections, or handlers of closed ones: its ServerOptions::connections_max"));
  }
  const uint64_t files_max = FilesMax() / 4 * 3;
  if (open_ >= files_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has ", open_, " connections, three quarters of its RLIMIT_NOFILE"));
  }
  const auto known = by_host_.find(place.host);
  const Host of_host = known == by_host_.end() ? Host() : known->second;
  if (of_host.open >= files_max / 4 * 3) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has ", of_host.open, " connections of this host; raise its RLIMIT_NOFILE"));
  }
  if (of_host.places >= connections_per_host_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has ", of_host.places,
                     " connections of this host, or handlers of closed ones: its "
                     "ServerOptions::connections_per_host_max"));
  }
  const auto [found, is_new] = memory_.try_emplace(place.pool);
  Memory& memory = found->second;
  if (is_new) memory.receives_max_bytes = ReceivesMax(place.pool->stats().limit_bytes);
  if (memory.receive_bytes + place.receive_bytes > memory.receives_max_bytes) {
    return absl::ResourceExhaustedError(
        "the server's memory for receives is used up: fewer slots, or a larger "
        "BufferPoolOptions::limit_bytes");
  }
  const auto held = memory.by_host.find(place.host);
  if (held != memory.by_host.end() &&
      held->second + place.receive_bytes > HostMax(memory.receives_max_bytes, place.receive_bytes)) {
    return absl::ResourceExhaustedError(
        "this host has its share of the server's memory for receives: fewer slots, or a larger "
        "BufferPoolOptions::limit_bytes");
  }
  memory.by_host[place.host] += place.receive_bytes;
  memory.receive_bytes += place.receive_bytes;
  Host& host = by_host_[place.host];
  ++host.places;
  ++host.open;
  ++places_;
  ++open_;
  return absl::OkStatus();
}

void Admission::Close(const Place& place) {
  HAWSER_SUBTRACT(open_, 1);
  HAWSER_SUBTRACT(by_host_[place.host].open, 1);
}

void Admission::Release(const Place& place) {
  HAWSER_SUBTRACT(places_, 1);
  Memory& memory = memory_[place.pool];
  HAWSER_SUBTRACT(memory.receive_bytes, place.receive_bytes);
  const auto held = memory.by_host.find(place.host);
  HAWSER_CHECK(held != memory.by_host.end(), "no receives of this host, but of ", memory.by_host.size(),
               " others");
  HAWSER_SUBTRACT(held->second, place.receive_bytes);
  if (held->second == 0) memory.by_host.erase(held);
  const auto of_host = by_host_.find(place.host);
  HAWSER_CHECK(of_host != by_host_.end(), "no places of this host, but of ", by_host_.size(), " others");
  HAWSER_SUBTRACT(of_host->second.places, 1);
  if (of_host->second.places == 0) by_host_.erase(of_host);
}

Admission::Newcomer* Admission::AddNewcomer(Newcomer& newcomer, const Place& place) {
  Newcomer* excess = newcomers_.WhichMakesRoom(place.host);
  newcomers_.Add(newcomer, place.host);
  const Memory& memory = memory_[place.pool];
  if (excess == nullptr && memory.receive_bytes > NearlyAll(memory.receives_max_bytes)) {
    size_t count = 0;
    excess = newcomers_.OldestOfTheMost(&count);
    if (count < 2) excess = nullptr;  // A single newcomer of a host is no flood.
  }
  if (excess != nullptr) newcomers_.Remove(*excess);
  return excess;
}

}  // namespace hawser::internal
