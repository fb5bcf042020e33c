#include "hawser/transport/fabric/check_connect.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace hawser::fabric {
namespace {

absl::Status CheckCall(absl::string_view what, bool idle, size_t private_bytes, size_t private_bytes_max) {
  if (!idle) return absl::FailedPreconditionError(absl::StrCat(what, ": this queue pair was used before"));
  if (private_bytes <= private_bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": ", private_bytes, " bytes of private data, at most ", private_bytes_max, " are possible"));
}

}  // namespace

absl::Status CheckConnect(absl::string_view what, bool idle, const SocketAddress& local,
                          const SocketAddress& peer, absl::string_view private_data) {
  absl::Status status = CheckCall(what, idle, private_data.size(), kConnectPrivateDataMax);
  if (!status.ok() || local.family() == AF_UNSPEC || local.family() == peer.family()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(what, " from ", local.ToString(), ": one is IPv4, one is IPv6"));
}

absl::Status CheckAccept(absl::string_view what, bool idle, absl::string_view private_data) {
  return CheckCall(what, idle, private_data.size(), kAcceptPrivateDataMax);
}

absl::Status RequestOfAnotherFabric(const ConnectRequest& request) {
  return absl::InvalidArgumentError(absl::StrCat("accept ", request.peer_address().ToString(),
                                                 ": it came over another fabric than this queue pair's"));
}

absl::Status NoTls(absl::string_view call) {
  return absl::InvalidArgumentError(absl::StrCat(call, ": this fabric carries no TLS"));
}

}  // namespace hawser::fabric
