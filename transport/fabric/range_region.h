#ifndef HAWSER_TRANSPORT_FABRIC_RANGE_REGION_H_
#define HAWSER_TRANSPORT_FABRIC_RANGE_REGION_H_

#include "absl/status/status.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {

// What Fabric::RegisterRange() returns where the device may go and come back: then it may be unable to use
// this memory, while it is as usable as before for everything else.
// Thread:   any.
class RangeRegion : public MemoryRegion {
 public:
  // FailedPrecondition: the device is back, and did not register this memory again; the text says why. A work
  // request that names it is refused. When the device comes back the next time it is tried again.
  virtual absl::Status Usable() const = 0;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_RANGE_REGION_H_
