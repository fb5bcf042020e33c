#ifndef HAWSER_TRANSPORT_CONNECTION_CONNECTION_OBSERVER_H_
#define HAWSER_TRANSPORT_CONNECTION_CONNECTION_OBSERVER_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::transport {

// Notifies the owner of a connection. Called on the poller; never from inside a call into the connection,
// except that Cancel() may call OnSlotFree().
class ConnectionObserver {
 public:
  virtual ~ConnectionObserver() = default;

  // The handshake is done: `peer` is what the other side sent, valid during the call. Called before the first
  // request, if this side answers requests.
  virtual void OnReady(const Handshake& peer) = 0;

  // Once, on a connection that this side has accepted: the peer has sent its first message. Until then it has
  // sent only its handshake.
  virtual void OnFirstMessage() {}

  // A request may be sent again, after SendRequest() had returned ResourceExhausted.
  virtual void OnSlotFree() {}

  // The peer has not answered a ping for half of ConnectionOptions::keepalive_timeout; `left` is the other
  // half, after which the connection ends. An observer that learns that the peer is only busy calls
  // PeerIsBusy().
  virtual void OnPeerSilent(absl::Duration left) { (void)left; }

  // The peer drains: it answers the requests it has, and refuses new ones.
  virtual void OnGoingAway() {}

  // Once, before OnClosed(): the connection cannot be used any more, and every handler of an exchange has
  // been notified of its end. The fabric may still own its memory, so use this only for what need not wait
  // for that, such as the next connection. `why`: as for OnClosed().
  virtual void OnLost(const absl::Status& why) { (void)why; }

  // Once, the last call: the fabric holds none of the connection's memory. It follows OnLost() as soon as all
  // work requests have completed; if they do not (a device or its driver is stuck), the queue pair is
  // destroyed after 5 s, over RDMA after 35 s. The poller destroys the connection soon after. `why`: what
  // ended it first; Cancelled after Close(). If OnReady() was not called before, connecting failed:
  // Unavailable; Unauthenticated, if TLS is asked for and one side does not trust the other; or
  // FailedPrecondition and the like with the peer's own reason.
  virtual void OnClosed(const absl::Status& why) = 0;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_CONNECTION_OBSERVER_H_
