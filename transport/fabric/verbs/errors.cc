#include "hawser/transport/fabric/verbs/errors.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"

namespace hawser::fabric {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EADDRINUSE:
      return absl::StatusCode::kAlreadyExists;
    case EADDRNOTAVAIL:
    case EINVAL:
      return absl::StatusCode::kInvalidArgument;
    case EIO:
    case ENODEV:
    case ENXIO:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Why a call has failed.
std::string Reason(int error) {
  return error != 0 ? DescribeErrno(std::abs(error)) : "it failed, and gives no reason (errno is 0)";
}

// The reason field of a REJ message (InfiniBand Architecture Specification 1.2.1, 12.6.7.2), named as the
// kernel's ib_cm.h names them.
struct RejectReason {
  int reason;
  const char* text;
};
constexpr RejectReason kRejectReasons[] = {
    {1, "IB_CM_REJ_NO_QP: the peer has no queue pair left"},
    {2, "IB_CM_REJ_NO_EEC: the peer has no end-to-end context left"},
    {3, "IB_CM_REJ_NO_RESOURCES: the peer has no resources left"},
    {4, "IB_CM_REJ_TIMEOUT: the other side gave up waiting for an answer"},
    {5, "IB_CM_REJ_UNSUPPORTED: the peer does not support what was asked for"},
    {6, "IB_CM_REJ_INVALID_COMM_ID: the other side has forgotten this connection"},
    {7, "IB_CM_REJ_INVALID_COMM_INSTANCE: the other side has forgotten this connection"},
    {8,
     "IB_CM_REJ_INVALID_SERVICE_ID: nothing listens there over RDMA; is the server up, does it listen on "
     "this "
     "port, "
     "on rdma:// rather than tcp://?"},
    {9, "IB_CM_REJ_INVALID_TRANSPORT_TYPE: the peer does not support the transport"},
    {10, "IB_CM_REJ_STALE_CONN: the peer still holds an earlier connection of this queue pair; try again"},
    {11, "IB_CM_REJ_RDC_NOT_EXIST"},
    {12,
     "IB_CM_REJ_INVALID_GID: the peer does not have the GID that the request was sent to; see the GID tables "
     "of "
     "both sides"},
    {13, "IB_CM_REJ_INVALID_LID: a LID changed; try again"},
    {14, "IB_CM_REJ_INVALID_SL"},
    {15, "IB_CM_REJ_INVALID_TRAFFIC_CLASS"},
    {16, "IB_CM_REJ_INVALID_HOP_LIMIT"},
    {17, "IB_CM_REJ_INVALID_PACKET_RATE"},
    {24, "IB_CM_REJ_PORT_CM_REDIRECT"},
    {25, "IB_CM_REJ_PORT_REDIRECT"},
    {26,
     "IB_CM_REJ_INVALID_MTU: the path MTU is more than the peer can do; compare active_mtu of both sides"},
    {27, "IB_CM_REJ_INSUFFICIENT_RESP_RESOURCES: the peer cannot serve so many outstanding READs"},
    {28,
     "IB_CM_REJ_CONSUMER_DEFINED: the peer's program rejected or has ended, or it listens on another "
     "address"},
    {29, "IB_CM_REJ_INVALID_RNR_RETRY"},
    {30, "IB_CM_REJ_DUPLICATE_LOCAL_COMM_ID"},
    {31, "IB_CM_REJ_INVALID_CLASS_VERSION"},
    {32, "IB_CM_REJ_INVALID_FLOW_LABEL"},
    {33, "IB_CM_REJ_INVALID_ALT_FLOW_LABEL"},
};
constexpr int kConsumerDefined = 28;

const char* LikelyCause(int error) {
  switch (error) {
    case ECONNREFUSED:
      return ": nothing listens there, or the peer's program rejected";
    case ECONNRESET:
      return ": the peer closed the connection before it was established";
    case ETIMEDOUT:
      return ": no answer; the host is down, it has no RDMA device on that address, or a firewall drops UDP "
             "port 4791 "
             "(RoCE v2)";
    case ENODEV:
      return ": no RDMA device serves the interface that leads there (loopback has none; see `rdma link`), "
             "or it has no GID of that interface's address, of RoCE v2 where the device knows it "
             "(hawser-doctor lists them)";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return ": no route leads there, or the host is down";
    case EADDRINUSE:
      return ": another socket of this machine has the port to connect from";
    case EADDRNOTAVAIL:
      return ": no local address or port is left to connect from";
    case EAFNOSUPPORT:
      return ": the RDMA device has no IPv6 (eRDMA has none); take an address of IPv4";
    case EINVAL:
      return ": the other side may have given up meanwhile";
    default:
      return "";
  }
}

}  // namespace

absl::Status VerbsError(absl::string_view what, absl::string_view call, int error, absl::string_view advice) {
  return absl::Status(
      CodeOf(error != 0 ? std::abs(error) : EINVAL),
      absl::StrCat(what, ": ", call, ": ", Reason(error), advice.empty() ? "" : ": ", advice));
}

std::string MemlockAdvice() {
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return absl::StrCat(
      "the memlock limit (ulimit -l) is ",
      limit.rlim_cur == RLIM_INFINITY
          ? std::string("unlimited, so the device or the kernel is out of memory")
          : absl::StrCat(limit.rlim_cur / 1024,
                         " KiB for all registered memory of this process, and with most NICs for "
                         "the rings of its queue pairs and completion queues: raise it "
                         "(LimitMEMLOCK= of systemd, /etc/security/limits.conf)"));
}

absl::Status CompletionQueueError(absl::string_view call, int error) {
  const bool pins = error == ENOMEM && absl::StartsWith(call, "ibv_");
  return VerbsError("create a completion queue", call, error,
                    pins              ? MemlockAdvice()
                    : error == EMFILE ? "raise the limit of open files (ulimit -n)"
                                      : "");
}

absl::Status RegistrationError(absl::string_view what, size_t length_bytes, int error) {
  if (error == ENOMEM) {
    return VerbsError(what, absl::StrCat("ibv_reg_mr() of ", length_bytes, " bytes"), error, MemlockAdvice());
  }
  if (error == EACCES || error == EPERM) {
    return VerbsError(
        what, absl::StrCat("ibv_reg_mr() of ", length_bytes, " bytes"), error,
        "this process did not open the device: an RDMA device cannot be used by a child after fork() or "
        "after a change of user; or the memory is mapped read-only");
  }
  if (error == EFAULT) {
    return VerbsError(what, absl::StrCat("ibv_reg_mr() of ", length_bytes, " bytes"), error,
                      "not all of it is mapped memory");
  }
  return VerbsError(what, absl::StrCat("ibv_reg_mr() of ", length_bytes, " bytes"), error);
}

absl::Status DmabufError(absl::string_view what, int error) {
  constexpr absl::string_view kCall = "ibv_reg_dmabuf_mr()";
  if (error == EOPNOTSUPP || error == ENOSYS) {
    const absl::Status status = VerbsError(what, kCall, error, "the driver of the device takes no dma-bufs");
    return absl::UnimplementedError(status.message());
  }
  if (error == EINVAL || error == EBADF) {
    return VerbsError(what, kCall, error,
                      "the file descriptor is not that of a dma-buf, or the range is beyond its end");
  }
  return VerbsError(what, kCall, error);
}

absl::Status ConnectError(absl::string_view what, rdma_cm_event_type event, int status) {
  const int error = std::abs(status);
  return absl::UnavailableError(
      absl::StrCat(what, ": ", DescribeCmEvent(event), ": ",
                   error != 0 ? DescribeErrno(error) : std::string("no reason given"), LikelyCause(error)));
}

absl::Status RejectedError(absl::string_view what, int status, bool iwarp, bool with_data) {
  if (status > 0 && !iwarp) {
    const char* text = "an unknown reason";
    for (const RejectReason& reason : kRejectReasons) {
      if (reason.reason == status) text = reason.text;
    }
    return absl::Status(
        status == kConsumerDefined ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
        absl::StrCat(what, ": rejected with ", status, " ", text));
  }
  const int error = std::abs(status);
  if (!iwarp) return ConnectError(what, RDMA_CM_EVENT_REJECTED, status);
  if (error == ECONNREFUSED || with_data) {
    return absl::PermissionDeniedError(
        absl::StrCat(what, ": rejected by the peer's program (", DescribeErrno(error), ")"));
  }
  return absl::UnavailableError(
      absl::StrCat(what, ": ", DescribeErrno(error),
                   ": nothing listens there over RDMA, or the peer's program ended before it answered"));
}

std::string RejectionData(absl::string_view reason, bool iwarp) {
  return reason.empty() && iwarp ? std::string(1, '\0') : std::string(reason);
}

absl::Status ConnectCallError(absl::string_view what, absl::string_view call, int error) {
  return absl::UnavailableError(
      absl::StrCat(what, ": ", call, ": ", Reason(error), LikelyCause(std::abs(error))));
}

CompletionStatus ToCompletionStatus(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return CompletionStatus::kSuccess;
    case IBV_WC_WR_FLUSH_ERR:
      return CompletionStatus::kFlushed;
    case IBV_WC_REM_ACCESS_ERR:
      return CompletionStatus::kRemoteAccessError;
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
      return CompletionStatus::kRemoteInvalidRequest;
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return CompletionStatus::kRemoteOperationError;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return CompletionStatus::kRnrRetryExceeded;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return CompletionStatus::kTransportRetryExceeded;
    default:
      return CompletionStatus::kLocalError;  // IBV_WC_LOC_*; no driver reports others for an RC queue pair.
  }
}

std::string DescribeAsyncEvent(ibv_event_type event) {
  switch (event) {
    case IBV_EVENT_CQ_ERR:
      return "IBV_EVENT_CQ_ERR";
    case IBV_EVENT_QP_FATAL:
      return "IBV_EVENT_QP_FATAL";
    case IBV_EVENT_QP_REQ_ERR:
      return "IBV_EVENT_QP_REQ_ERR";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "IBV_EVENT_QP_ACCESS_ERR";
    case IBV_EVENT_DEVICE_FATAL:
      return "IBV_EVENT_DEVICE_FATAL";
    default:
      return absl::StrCat("asynchronous event ", static_cast<int>(event));
  }
}

std::string DescribeCmEvent(rdma_cm_event_type event) {
  switch (event) {
    case RDMA_CM_EVENT_ADDR_ERROR:
      return "RDMA_CM_EVENT_ADDR_ERROR (the address could not be resolved)";
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return "RDMA_CM_EVENT_ROUTE_ERROR (the route could not be resolved)";
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return "RDMA_CM_EVENT_CONNECT_ERROR";
    case RDMA_CM_EVENT_UNREACHABLE:
      return "RDMA_CM_EVENT_UNREACHABLE";
    case RDMA_CM_EVENT_REJECTED:
      return "RDMA_CM_EVENT_REJECTED";
    case RDMA_CM_EVENT_DISCONNECTED:
      return "RDMA_CM_EVENT_DISCONNECTED";
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return "RDMA_CM_EVENT_DEVICE_REMOVAL";
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return "RDMA_CM_EVENT_ADDR_CHANGE (the network device's address changed)";
    default:
      return absl::StrCat("event ", static_cast<int>(event), " of the connection manager");
  }
}

}  // namespace hawser::fabric
