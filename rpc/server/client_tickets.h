#ifndef HAWSER_RPC_SERVER_CLIENT_TICKETS_H_
#define HAWSER_RPC_SERVER_CLIENT_TICKETS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/peer_table.h"
#include "hawser/rpc/server/shared_regions.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lent_memory.h"

namespace hawser::internal {

// The tickets for shared memory that one client has. One of memory that is revoked goes at once, and costs
// neither its host nor the others anything. The client may still show it: Find() says that it is void.
// Thread:   any.
// Lifetime: shared by the session of the client and, weakly, SharedRegions.
class ClientTickets final : public SharedRegions::Holder, public std::enable_shared_from_this<ClientTickets> {
 public:
  // Tickets that one client may have. The same memory for the same purpose has one.
  static constexpr uint32_t kMax = 4096;

  ClientTickets(const PeerHost& host, std::shared_ptr<SharedRegions> regions);
  ~ClientTickets();
  ClientTickets(const ClientTickets&) = delete;
  ClientTickets& operator=(const ClientTickets&) = delete;

  // Gives `ticket`, which is for a part of `memory`, its key: a new one, or that of the same ticket before.
  // `arrivals` count its WRITEs; null: none does. ResourceExhausted: the client, its host or all hosts
  // together have too many. FailedPrecondition: the memory is revoked.
  absl::Status Give(const std::shared_ptr<transport::LentMemory>& memory,
                    const std::shared_ptr<transport::Arrivals>& arrivals, transport::LaneTicket& ticket);

  // The memory of a ticket that the client shows. FailedPrecondition: it is of another server, or its memory
  // is revoked. PermissionDenied: this client was not given it.
  absl::StatusOr<std::shared_ptr<transport::LentMemory>> Find(const transport::LaneTicket& ticket);
  // What counts the WRITEs of a ticket that Find() has found. FailedPrecondition: it is void by now.
  absl::StatusOr<std::shared_ptr<transport::Arrivals>> FindArrivals(const transport::LaneTicket& ticket);

 private:
  using Key = std::array<uint8_t, 16>;
  // Region, offset, length, access, and which Arrivals count: 0, none.
  using What = std::tuple<uint64_t, uint64_t, uint64_t, uint8_t, uint64_t>;
  struct Given {
    transport::LaneTicket ticket;
    std::weak_ptr<transport::LentMemory> memory;
    std::shared_ptr<transport::Arrivals> arrivals;
  };

  // Those whose counter has ended. They are void, and count until a bound is met.
  void ForgetEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // SharedRegions::Holder
  void OnRevoked(uint64_t region) override;

  const PeerHost host_;
  const std::shared_ptr<SharedRegions> regions_;
  absl::Mutex mutex_;  // Locked before that of `regions_`.
  absl::flat_hash_map<Key, Given> given_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<What, Key> keys_ ABSL_GUARDED_BY(mutex_);  // Of the same.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_CLIENT_TICKETS_H_
