#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_REVOCATIONS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_REVOCATIONS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "hawser/transport/fabric/verbs/endpoint.h"
#include "hawser/transport/fabric/verbs/send_queue.h"

namespace hawser::fabric {

// The grants of one queue pair that are being taken back, and the completions of Revoke(). A revocation
// completes when the peer can use the grant no more:
//
//   a window         | with its LOCAL_INV (VerbsSendQueue); at once if the peer has invalidated it, or it
//                    | was never bound
//   a registration   | when the control thread has deregistered it; the poller does if that is far behind
//   in kError        | when the control thread has moved the ibv_qp to error and has released all grants
//   what the device  | when the ibv_qp is destroyed
//   does not release |
//
// Thread:   that of the queue pair.
class VerbsRevocations {
 public:
  VerbsRevocations(VerbsEndpoint& endpoint, VerbsSendQueue& sends) : endpoint_(endpoint), sends_(sends) {}

  // As QueuePair::Revoke().
  void Revoke(uint32_t rkey, uint64_t wr_id);
  // The control thread is deregistering some. They count among the grants until it has.
  bool revoking() const { return revoking_ != 0; }
  // Some of these are over: perhaps they are by now; else this waits for the device.
  void WaitForRoom();

  // The queue pair has entered kError, and OnReleased() will follow: later revocations wait for it.
  void OnEnding() { releasing_ = true; }
  // Completes those whose work requests were not posted as flushed.
  void FlushQueued();
  // Gives all grants to the VerbsDeviceQp, whose next command releases them.
  void ReleaseAll();
  // It has, or not all of them.
  void OnReleased(bool all);
  // The ibv_qp was destroyed. What the device has not deregistered by now, it will not: nothing is left to
  // wait for.
  void OnDestroyed();
  // This one cannot succeed any more.
  void Flush(uint64_t wr_id);

  bool releasing() const { return releasing_; }
  bool unreleased() const { return unreleased_; }
  // Nothing that the device may still let the peer use, and nothing to complete.
  bool idle() const { return !releases_some_ && revoking_ == 0 && wr_ids_.empty(); }

 private:
  void TakeRevoked();
  void DeliverAll();

  VerbsEndpoint& endpoint_;
  VerbsSendQueue& sends_;
  uint32_t revoking_ = 0;       // Grants that the control thread deregisters.
  bool releasing_ = false;      // It is moving the ibv_qp to error, and releases the grants.
  bool releases_some_ = false;  // Grants that may still give the peer access are among these.
  // The device did not release all; it is tried again when the ibv_qp is destroyed.
  bool unreleased_ = false;
  std::vector<uint64_t> wr_ids_;  // Flushed, but not released yet.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_REVOCATIONS_H_
