#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_SENTINEL_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_SENTINEL_H_

#include <rdma/rdma_cma.h>

#include "hawser/base/socket_address.h"
#include "hawser/transport/fabric/verbs/event_channel.h"
#include "hawser/transport/fabric/verbs/library.h"

namespace hawser::fabric {

// An id that is bound to the device as long as a completion queue uses that. If the driver cannot take a
// device from its users, as software devices cannot, only the ids that are bound to it are notified of its
// removal, and it waits for all users. So one such id always exists.
// Thread:   that of the completion queue.
// Lifetime: part of the completion queue, which destroys the id before it leaves the device.
// Failure:  without the id the removal is noticed late; nothing else fails.
class VerbsSentinel {
 public:
  explicit VerbsSentinel(const VerbsLibrary& verbs) : verbs_(verbs) {}
  VerbsSentinel(const VerbsSentinel&) = delete;
  VerbsSentinel& operator=(const VerbsSentinel&) = delete;

  // `local`: an address of the device. No effect if it is bound already.
  void Bind(VerbsEventChannel& channel, const SocketAddress& local);
  void Destroy();

 private:
  const VerbsLibrary& verbs_;
  rdma_cm_id* id_ = nullptr;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_SENTINEL_H_
