#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_SINKS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_SINKS_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/memory.h"

namespace hawser::fabric {

// The registrations of what one queue pair READs into, on a device that needs them.
//
// On iWARP a READ names its sink to the peer, and the answer is placed there as if the peer had written it
// (RFC 5040, 5.2). So the sink has to be registered for REMOTE_WRITE. Slabs are not, because the key of a
// slab would let every peer of the process WRITE everything in it, at any time. Exactly the range that is
// READ is, until the READ has completed. Linux does the same for its own users of iWARP
// (rdma_rw_init_one_mr() in drivers/infiniband/core/rw.c). The drivers do not say which devices could do
// without: irdma, erdma and cxgb4 hand the access to the hardware; siw looks for LOCAL_WRITE only
// (siw_proc_rresp() in siw_qp_rx.c).
//
// A registration costs a NIC a command or two, as much as a READ of 256 KiB. So the READs into one sink that
// was opened share one registration for each kPortionBytes.
// Thread:   that of the queue pair.
class VerbsSinks {
 public:
  // The most that is registered at once because of one READ: 4,096 pages, which take the kernel a fraction of
  // a millisecond.
  static constexpr uint64_t kPortionBytes = 16 << 20;

  // No registration. Others have numbers that are not reused.
  static constexpr uint32_t kNone = 0;

  // `enabled`: READs need registrations. Otherwise Begin() is not called. `optional_access`: see
  // VerbsMemory::OptionalAccess().
  VerbsSinks(VerbsDevice& device, const VerbsMemory& memory, bool enabled, int optional_access)
      : device_(device),
        memory_(memory),
        enabled_(enabled),
        access_(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | optional_access) {}
  ~VerbsSinks() { Release(); }
  VerbsSinks(const VerbsSinks&) = delete;
  VerbsSinks& operator=(const VerbsSinks&) = delete;

  bool enabled() const { return enabled_; }

  // See QueuePair::OpenSink() and CloseSink(). Internal: the device did not deregister it.
  void Open(uint8_t* address, uint64_t length_bytes) { open_.push_back({address, length_bytes, kNone}); }
  absl::Status Close(const uint8_t* address);

  struct Begun {
    uint32_t number = kNone;
    uint32_t lkey = 0;  // The device's.
  };
  // A READ into `range`, which is in a region, is about to be posted. ResourceExhausted and the like: it
  // could not be registered. Internal: the portion before was not deregistered.
  absl::StatusOr<Begun> Begin(const Sge& range);

  // Such a READ has completed, or was not posted. After the last one the range is deregistered, unless
  // further READs of an open sink may use it. Internal: the device did not deregister it, so the queue pair
  // must end.
  absl::Status End(uint32_t number);

  // The queue pair is in error: nothing follows but the ends of READs.
  void CloseAll();

  // The device did not deregister something that is in no use any more, so a peer may still write there.
  bool refused() const { return refused_; }

  // The ibv_qp is destroyed, or there is none: deregisters all. The next call tries again what the device
  // refuses.
  void Release();
  // Likewise. Returns what the device refuses, which is not tried again here.
  std::vector<ibv_mr*> TakeAll();

 private:
  struct Registration {
    uint32_t number;
    ibv_mr* mr;
    const uint8_t* begin;
    const uint8_t* end;
    uint32_t reads;  // That have not ended.
    bool is_kept;    // For further READs of an open sink.
  };
  struct OpenSink {
    uint8_t* address;
    uint64_t length_bytes;
    uint32_t registration;  // That of the portion that was READ into last.
  };

  Registration* Find(uint32_t number);
  OpenSink* FindOpen(const Sge& range);
  Sge PortionOf(const OpenSink& sink, const Sge& range) const;
  absl::Status Unkeep(uint32_t number);
  absl::Status DeregisterIfUnused(Registration& registration);

  VerbsDevice& device_;
  const VerbsMemory& memory_;
  const bool enabled_;
  const int access_;
  bool refused_ = false;
  uint32_t last_number_ = kNone;
  std::vector<Registration> registrations_;  // Few: the READs outstanding, and the open sinks.
  std::vector<OpenSink> open_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_SINKS_H_
