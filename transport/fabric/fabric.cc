#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {

absl::string_view Describe(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kSuccess:
      return "IBV_WC_SUCCESS";
    case CompletionStatus::kLocalError:
      return "IBV_WC_LOC_*_ERR (our own work request was wrong: memory that is not registered, or a receive "
             "shorter than the message)";
    case CompletionStatus::kRemoteAccessError:
      return "IBV_WC_REM_ACCESS_ERR (the peer refused the address or rkey of a READ or WRITE)";
    case CompletionStatus::kRemoteInvalidRequest:
      return "IBV_WC_REM_INV_REQ_ERR (the peer refused the request: a message longer than its posted "
             "receive, "
             "or more outstanding READs than agreed)";
    case CompletionStatus::kRemoteOperationError:
      return "IBV_WC_REM_OP_ERR (the peer could not carry out the request)";
    case CompletionStatus::kRnrRetryExceeded:
      return "IBV_WC_RNR_RETRY_EXC_ERR (the peer posted no receive for the message, and the retries are used "
             "up)";
    case CompletionStatus::kTransportRetryExceeded:
      return "IBV_WC_RETRY_EXC_ERR (the peer does not answer: it died, or the network is cut)";
    case CompletionStatus::kFlushed:
      return "IBV_WC_WR_FLUSH_ERR (an earlier error, or Disconnect(), ended the queue pair)";
  }
  return "unknown completion status";
}

}  // namespace hawser::fabric
