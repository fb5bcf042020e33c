#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_GRANTS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_GRANTS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/memory.h"
#include "hawser/transport/fabric/verbs/options.h"
#include "hawser/transport/fabric/verbs/rings.h"
#include "hawser/transport/fabric/verbs/send_ring.h"

namespace hawser::fabric {

// The memory that one queue pair's peer may READ, WRITE or use atomics on. Each grant is a memory window of
// type 2B. A BIND_MW work request binds it to this queue pair and to exactly the range; a LOCAL_INV takes it
// back, unless the peer has done so with a SEND_WITH_INV; nothing is pinned or mapped. These work requests
// wait here until the queue pair posts them, in order, before its caller's next ones.
//
// They have places of their own in the send queue, fewer than all grants could need at once: a NIC pins the
// memory of each place (see rings.h). Work requests without a place wait here, too, until
// completions free some. A place is free once its work request, or a later one, has a completion. LOCAL_INV
// is signaled. BIND_MW is not, unless half of the places are taken by work requests behind which nothing
// signaled was posted. So if all places are taken, a completion that frees some always follows, whatever the
// caller posts and signals.
//
// Windows come from the stock of the device, are kept until the queue pair ends, and return there. One that
// may still be bound then is deallocated.
//
// On a device without such windows (GrantKind::kRegistered) each grant is a registration of the range: slow,
// and exact, but every queue pair of the protection domain may use it (see windows.h). A peer that guesses
// the rkey, the address and the moment READs what was granted to another peer; a wrong guess ends its
// connection.
//
// With GrantKind::kShared a grant to READ is the key of its region, which all peers may READ.
// Thread:   that of the queue pair.
class VerbsGrants {
 public:
  // TakeAll() comes before the destructor.
  VerbsGrants(VerbsDevice& device, const VerbsMemory& memory, GrantKind kind, uint32_t grants_max);

  // Places of the send queue for its work requests.
  uint32_t sends_max() const { return kind_ == GrantKind::kWindows ? rings::GrantSends(grants_max_) : 0; }
  // After so many unsignaled BIND_MW in a row, the last of them is to be signaled.
  uint32_t signal_interval() const { return sends_max() / 2; }

  // `range` lies in a region. As QueuePair::Grant().
  absl::StatusOr<uint32_t> Grant(const Sge& range, QueuePair::Access access);

  // True: the peer cannot use it any more. False: it can until the LOCAL_INV, now queued, has completed.
  bool Revoke(uint32_t rkey, uint64_t wr_id);

  // The registration that is the grant, if it is one, for ibv_dereg_mr(): the peer can use it until then.
  // OnDeregistered() follows. Null: it is a window, or none of this queue pair.
  ibv_mr* TakeRegistration(uint32_t rkey);
  void OnDeregistered() { --deregistering_; }

  // Work requests that wait to be posted.
  size_t queued() const { return queue_.size(); }
  // A BIND_MW is among them, not counting the first `count`.
  bool HasBindBehind(size_t count) const;
  // Fills in `request` (but its wr_id and next) and its entry for the `i`th of them.
  void Fill(size_t i, ibv_send_wr& request, VerbsSendRing::Entry& entry) const;
  void OnPosted(size_t count);  // The first `count`. Their completions follow; the others are still queued.

  // The device says that a SEND_WITH_INV of the peer has invalidated the window of `rkey`. Revoke() then
  // needs no LOCAL_INV. A peer may do this earlier than is of use to it. The window is not bound anew, and
  // the memory is not free, before Revoke(). Has no effect if no window is bound with exactly this key.
  // False: a LOCAL_INV of it is queued or under way, which will fail. The peer had been told so late that it
  // may not name the key any more.
  bool OnEnded(uint32_t rkey);

  // The LOCAL_INV of `window` has completed.
  void OnInvalidated(uint32_t window, bool ok);

  // The queue pair is in error: drops the queued work requests. Adds the wr_ids of queued revocations.
  void DropQueued(std::vector<uint64_t>& revocations);

  // Objects of the device, which VerbsDeviceQp releases: that takes commands to the device.
  struct Leftover {
    // Each may still give a peer access: for ibv_dealloc_mw() and ibv_dereg_mr().
    std::vector<ibv_mw*> windows;
    std::vector<ibv_mr*> registrations;
    std::vector<ibv_mw*> unbound;  // For the stock.

    bool gives_access() const { return !windows.empty() || !registrations.empty(); }
    void Add(Leftover more);
  };
  // Everything, to be released without work requests: when the queue pair is in error and executes none any
  // more, and before the ibv_qp is destroyed, since on rxe a bound window keeps it alive.
  Leftover TakeAll();

 private:
  enum class State : uint8_t {
    kFree,
    kBindQueued,
    kBound,  // BIND_MW was posted. Only a successful invalidation frees it again.
    kEnded,  // The peer has invalidated it. Revoke() frees it.
    kInvalidateQueued,
    kInvalidating,
  };
  struct Window {
    ibv_mw* mw;
    State state = State::kFree;
    uint32_t rkey = 0;
    ibv_mr* mr = nullptr;
    Sge range;
    unsigned int access = 0;
    uint64_t revocation_wr_id = 0;
  };

  absl::StatusOr<uint32_t> GrantByRegistration(const Sge& range, int access);
  absl::Status TooMany() const;

  // The upper bits of an rkey identify the window; the low 8 change at every bind (ibv_inc_rkey()).
  static uint32_t Key(uint32_t rkey) { return rkey >> 8; }

  VerbsDevice& device_;
  const VerbsMemory& memory_;
  const GrantKind kind_;
  const uint32_t grants_max_;
  std::vector<Window> windows_;
  std::vector<uint32_t> free_;                         // Indexes.
  std::vector<uint32_t> queue_;                        // Indexes; what is to be done, their states say.
  absl::flat_hash_map<uint32_t, uint32_t> by_key_;     // Indexes.
  absl::flat_hash_map<uint32_t, ibv_mr*> registered_;  // By rkey, without windows.
  size_t deregistering_ = 0;                           // That TakeRegistration() has returned.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_GRANTS_H_
