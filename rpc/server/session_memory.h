#ifndef HAWSER_RPC_SERVER_SESSION_MEMORY_H_
#define HAWSER_RPC_SERVER_SESSION_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/rpc/server/admission.h"
#include "hawser/rpc/server/client_tickets.h"
#include "hawser/rpc/server/shared_regions.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lane_server.h"
#include "hawser/transport/lane/lent_memory.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"

namespace hawser::internal {

// What one client reaches of the server's memory: its tickets, and the lane over which it shows them. There
// is one from the first ticket, or the first lane, on.
// Thread:   Grant(): any; the rest on the poller of the session.
// Lifetime: shared by its session and the lanes.
class SessionMemory final : public transport::LaneServer::Owner,
                            public std::enable_shared_from_this<SessionMemory> {
 public:
  // `poller` is of `runtime`.
  SessionMemory(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller, const PeerHost& host,
                std::shared_ptr<SharedRegions> regions);
  ~SessionMemory() override;
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;

  // The client may reach this range. See ServerContext::Grant(). `arrivals` count its WRITEs; null: none
  // does.
  absl::StatusOr<transport::LaneTicket> Grant(const std::shared_ptr<transport::LentMemory>& memory,
                                              uint64_t offset, uint64_t length, uint8_t access,
                                              const std::shared_ptr<transport::Arrivals>& arrivals);

  // The client opens its lane, in the place of an earlier one. `on_gone` runs when it has ended. Not OK:
  // `request` was rejected with the reason, and `on_gone` does not run.
  absl::Status Accept(transport::PeerRequest request, absl::AnyInvocable<void()> on_gone);
  // The session has ended.
  void Close(const absl::Status& why);

 private:
  // transport::LaneServer::Owner
  absl::StatusOr<std::shared_ptr<transport::LentMemory>> OnTicket(
      const transport::LaneTicket& ticket) override;
  absl::StatusOr<std::shared_ptr<transport::Arrivals>> OnCountedTicket(
      const transport::LaneTicket& ticket) override;
  absl::Status TakeGrant() override;
  void GiveBackGrants(size_t count) override;
  void OnLaneGone(transport::LaneServer& lane) override;

  const std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller& poller_;
  const PeerHost host_;
  const std::shared_ptr<SharedRegions> regions_;
  const std::shared_ptr<ClientTickets> tickets_;

  // ---- On the poller.
  bool closed_ = false;
  transport::LaneServer* lane_ = nullptr;  // The newest. Null: there is none.
  absl::flat_hash_map<transport::LaneServer*, absl::AnyInvocable<void()>> on_gone_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SESSION_MEMORY_H_
