#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_CHECK_SEND_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_CHECK_SEND_H_

#include "absl/status/status.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/endpoint.h"
#include "hawser/transport/fabric/verbs/memory.h"

namespace hawser::fabric {

// Whether the queue pair of `endpoint` may post `request`, before anything is posted: verbs would refuse it
// with EINVAL, or end the queue pair. `registers_sinks`: the memory that a READ fills is registered for it.
// InvalidArgument: the text says what is possible; or the refusal of `memory`.
absl::Status CheckSend(const SendWorkRequest& request, const VerbsEndpoint& endpoint,
                       const VerbsMemory& memory, bool registers_sinks);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_CHECK_SEND_H_
