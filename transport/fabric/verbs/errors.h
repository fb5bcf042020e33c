#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_ERRORS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_ERRORS_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/fabric/fabric.h"

// Errors of verbs and of the connection manager as texts: what was being done, the call, errno, the likely
// cause, what to try.
namespace hawser::fabric {

// "`what`: `call`: invalid argument (EINVAL): `advice`". `error`: an errno, of either sign. 0: the call
// failed, and some providers set no errno then. It is taken for EINVAL, and the text says so.
absl::Status VerbsError(absl::string_view what, absl::string_view call, int error,
                        absl::string_view advice = "");

// For ENOMEM of a call after which the device may reach memory of the process: "the memlock limit (ulimit -l)
// is ...".
std::string MemlockAdvice();

// `call`, made to create a completion queue, failed. Knows about the memlock limit and that of open files.
absl::Status CompletionQueueError(absl::string_view call, int error);

// ibv_reg_mr() of `length_bytes` failed. Knows about the memlock limit and children after fork().
absl::Status RegistrationError(absl::string_view what, size_t length_bytes, int error);

// ibv_reg_dmabuf_mr() failed. Unimplemented: the driver of the device has no dma-bufs.
absl::Status DmabufError(absl::string_view what, int error);

// Connecting to, or accepting, `peer` ended with this event of the connection manager, which is not
// RDMA_CM_EVENT_REJECTED: Unavailable.
absl::Status ConnectError(absl::string_view what, rdma_cm_event_type event, int status);

// Connecting to `peer` ended with RDMA_CM_EVENT_REJECTED, and this status. `with_data`: the event has private
// data of the peer.
// PermissionDenied: the peer's program rejected. Otherwise Unavailable: nothing listens there, for example.
//
// Over iWARP a rejection by the peer's program arrives as ECONNREFUSED with irdma, cxgb4 and qedr, and a
// closed port as ECONNRESET. With siw and erdma both the rejection and what ends before it are ECONNRESET,
// and with erdma a closed port is, too. There only private data tells them apart, so a rejection over iWARP
// always has some: see RejectionData().
absl::Status RejectedError(absl::string_view what, int status, bool iwarp, bool with_data);

// What rdma_reject() is given for the private data `reason`: over iWARP one zero if it is empty.
std::string RejectionData(absl::string_view reason, bool iwarp);

// A call made on the way to a connection failed: Unavailable.
absl::Status ConnectCallError(absl::string_view what, absl::string_view call, int error);

CompletionStatus ToCompletionStatus(ibv_wc_status status);

// "IBV_EVENT_QP_FATAL".
std::string DescribeAsyncEvent(ibv_event_type event);

// "RDMA_CM_EVENT_REJECTED".
std::string DescribeCmEvent(rdma_cm_event_type event);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_ERRORS_H_
