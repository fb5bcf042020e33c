#ifndef HAWSER_RPC_SERVER_SHARED_REGIONS_H_
#define HAWSER_RPC_SERVER_SHARED_REGIONS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/peer_table.h"
#include "hawser/rpc/server/host_counts.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/lane/lent_memory.h"

namespace hawser::internal {

// Names the memory that a server shares, and counts it, the lanes for it, and the tickets and grants, by
// host.
// Thread:   any.
// Lifetime: shared by the server and its sessions.
class SharedRegions {
 public:
  // Tickets that the clients of one host may have.
  static constexpr uint32_t kTicketsPerHostMax = 16384;
  // Those of all hosts: some 300 bytes each, 80 MB in all. See HostCounts.
  static constexpr uint64_t kTicketsMax = uint64_t{1} << 18;
  // Grants of all hosts: tickets that are in use on a lane, which has 128 at most.
  static constexpr uint64_t kGrantsMax = uint64_t{1} << 18;

  // `environment` outlives it.
  explicit SharedRegions(transport::Environment& environment) : environment_(environment) {}

  transport::Environment& environment() { return environment_; }

  // For new memory. The first one draws the owner's random bits: a server that shares none draws none.
  transport::LentMemory::Name NewName();
  // 0: nothing was shared yet.
  uint64_t owner() const;

  // It is shared under such a name, until OnRevoked().
  void Add(const std::shared_ptr<transport::LentMemory>& memory);
  // No more. Its holders have no tickets for it any more when this returns. It takes as long as these are
  // many.
  void OnRevoked(uint64_t region);
  // Memory of this number was shared once, and is not any more.
  bool IsRevoked(uint64_t region) const;

  // What has tickets for shared memory: those of one client.
  class Holder {
   public:
    // Its tickets for this memory are void. On the thread that revokes it.
    virtual void OnRevoked(uint64_t region) = 0;

   protected:
    ~Holder() = default;
  };
  // From now on `holder` has a ticket for this memory; again: no effect. False: the memory is revoked.
  bool AddHolder(uint64_t region, std::weak_ptr<Holder> holder);
  void RemoveHolder(uint64_t region, const Holder& holder);

  // ResourceExhausted: this host has too many, or all together.
  absl::Status AddTicket(const PeerHost& host);
  void RemoveTickets(const PeerHost& host, uint64_t count);
  absl::Status AddGrant(const PeerHost& host);
  void RemoveGrants(const PeerHost& host, uint64_t count);

  void AddLane();
  void RemoveLanes(size_t count);

  // What a snapshot shows.
  struct Totals {
    uint64_t regions = 0;  // Not revoked.
    uint64_t bytes = 0;
    uint64_t tickets = 0;
    uint64_t grants = 0;
    uint64_t lanes = 0;
    uint64_t lanes_opened = 0;
  };
  Totals totals() const;

 private:
  transport::Environment& environment_;
  mutable absl::Mutex mutex_;
  uint64_t owner_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t regions_ ABSL_GUARDED_BY(mutex_) = 0;
  struct Shared {
    std::weak_ptr<transport::LentMemory> memory;
    absl::flat_hash_map<const Holder*, std::weak_ptr<Holder>> holders;
  };
  absl::flat_hash_map<uint64_t, Shared> shared_ ABSL_GUARDED_BY(mutex_);  // By the number of the region.
  uint64_t lanes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t lanes_opened_ ABSL_GUARDED_BY(mutex_) = 0;
  HostCounts tickets_ ABSL_GUARDED_BY(mutex_){"tickets for shared memory", kTicketsPerHostMax, kTicketsMax};
  HostCounts grants_ ABSL_GUARDED_BY(mutex_){"grants of shared memory", kGrantsMax, kGrantsMax};
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SHARED_REGIONS_H_
