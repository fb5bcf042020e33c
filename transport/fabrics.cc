#include "hawser/transport/fabrics.h"

#include <sys/socket.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/tcp/fabric.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/route.h"
#include "hawser/transport/log/log.h"
#include "hawser/transport/uri.h"

namespace hawser::transport {
namespace {

std::optional<fabric::GrantKind> ToVerbs(RdmaGrants grants) {
  switch (grants) {
    case RdmaGrants::kWindows:
      return fabric::GrantKind::kWindows;
    case RdmaGrants::kRegistered:
      return fabric::GrantKind::kRegistered;
    case RdmaGrants::kShared:
      return fabric::GrantKind::kShared;
    case RdmaGrants::kAutomatic:
      break;
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckScheme(absl::string_view scheme) {
  if (scheme == kTcpScheme || scheme == kRdmaScheme) return absl::OkStatus();
  if (scheme == kAutoScheme) {
    return absl::InvalidArgumentError(
        "auto:// chooses a network for Connect() and Listen(); a runtime wants one of tcp://, rdma://");
  }
  return absl::InvalidArgumentError(absl::StrCat("no fabric for \"", scheme, "://\"; there are: ", kSchemes));
}

absl::Status CheckSchemeIsSecure(absl::string_view scheme, bool require_encryption) {
  if (absl::Status known = CheckScheme(scheme); !known.ok()) return known;
  if (scheme == kTcpScheme || !require_encryption) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("TlsCredentials::require_encryption: ", scheme,
                                                 ":// proves who connects, but does not encrypt what "
                                                 "crosses; use tcp://, or set it to false on a network "
                                                 "that you trust"));
}

absl::StatusOr<std::shared_ptr<fabric::Fabric>> CreateFabric(absl::string_view scheme,
                                                             const std::string& rdma_device,
                                                             std::optional<uint8_t> rdma_traffic_class,
                                                             RdmaGrants rdma_grants) {
  if (scheme == kTcpScheme) return std::shared_ptr<fabric::Fabric>(fabric::CreateTcpFabric());
  if (scheme == kRdmaScheme)
    return fabric::NewVerbsFabric({.device = rdma_device,
                                   .traffic_class = rdma_traffic_class,
                                   .grants = ToVerbs(rdma_grants),
                                   .warn = [](absl::string_view line) { Log(LogSeverity::kWarning, line); }});
  return CheckScheme(scheme);
}

std::string DeviceFor(absl::string_view scheme, const SocketAddress& local, const SocketAddress& remote) {
  if (scheme != kRdmaScheme || std::getenv("HAWSER_RDMA_DEVICE") != nullptr) return "";
  if (fabric::VerbsDeviceCount() < 2) return "";  // Every address, and every name, uses the same device.
  return fabric::VerbsDeviceOf(local.family() != AF_UNSPEC ? local : fabric::RouteSource(remote));
}

}  // namespace hawser::transport
