#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_SUITABILITY_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_SUITABILITY_H_

#include <infiniband/verbs.h>

#include "absl/status/status.h"

// Which RDMA devices Hawser can use.
// Thread:   any.
namespace hawser::fabric {

// What Hawser cannot do without: places in queue pairs and completion queues, and READs in both directions, by which large
// messages are fetched. 0 READs means none on iWARP, too: every driver fills in both attributes (siw_query_device(),
// irdma_query_device(), erdma_query_device(), c4iw_query_device(), qedr_query_device()). That differs from the events
// of iWARP devices, see AgreedReadDepth().
// FailedPrecondition: the text names the attribute and its value.
absl::Status CheckAttributes(const ibv_device_attr& attr);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_SUITABILITY_H_
