#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_FABRIC_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_FABRIC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/options.h"

// The fabric for InfiniBand, RoCE and iWARP: reliable connected queue pairs on libibverbs, connected by
// librdmacm. Both libraries are opened at run time. The NIC reads and writes memory by itself, for peers;
// they reach only what a queue pair has granted to them.
namespace hawser::fabric {

// Opens the device. NotFound: no RDMA libraries, no device, or none of that name. PermissionDenied: it cannot
// be opened. InvalidArgument: it has no reliable connections. Unavailable: no port is active.
// FailedPrecondition: a child after fork() of a process that has opened one before; or the device lacks
// READs, or what `options` ask for.
absl::StatusOr<std::shared_ptr<Fabric>> NewVerbsFabric(const VerbsFabricOptions& options = {});

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_FABRIC_H_
