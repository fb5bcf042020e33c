#ifndef HAWSER_RPC_SERVING_SERVING_OWNER_H_
#define HAWSER_RPC_SERVING_SERVING_OWNER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lent_memory.h"

namespace hawser {
class Channel;
}

namespace hawser::internal {

// The owner of a ServingConnection, as that sees it: what happens to the connection, and what its handlers
// may ask for.
// Thread:   on the poller, unless a method says otherwise.
// Lifetime: outlives the connection.
class ServingOwner {
 public:
  virtual void OnServingReady() {}
  // Once, before OnServingClosed(): the connection is lost. The fabric may still own its memory.
  virtual void OnServingLost(const absl::Status& why) { (void)why; }
  // See transport::ConnectionObserver::OnPeerSilent().
  virtual void OnServingPeerSilent(absl::Duration left) { (void)left; }
  // Once: an accepted client has sent its first message.
  virtual void OnServingFirstMessage() {}
  // Once: no request arrives and no answer leaves any more. Handlers may still run; they were notified.
  virtual void OnServingClosed(const absl::Status& why) = 0;
  // Once, the last call. The owner may destroy the connection here.
  virtual void OnServingEnded() = 0;
  // See ServerContext::peer(). From any thread.
  virtual std::shared_ptr<Channel> peer() { return nullptr; }
  // See ServerContext::Grant(). From any thread.
  virtual absl::StatusOr<transport::LaneTicket> GrantMemory(
      const std::shared_ptr<transport::LentMemory>& memory, uint64_t offset, uint64_t length, uint8_t access,
      const std::shared_ptr<transport::Arrivals>& arrivals);

 protected:
  ~ServingOwner() = default;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_SERVING_OWNER_H_
