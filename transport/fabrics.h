#ifndef HAWSER_TRANSPORT_FABRICS_H_
#define HAWSER_TRANSPORT_FABRICS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/base/socket_address.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// InvalidArgument: no fabric serves URIs of `scheme`.
absl::Status CheckScheme(absl::string_view scheme);

// Whether URIs of `scheme` can be used with credentials. InvalidArgument: no fabric serves them, or it does
// not encrypt what crosses, and `require_encryption`.
absl::Status CheckSchemeIsSecure(absl::string_view scheme, bool require_encryption);

// The fabric that serves URIs of `scheme`: the one place that knows which there are. InvalidArgument: none
// does. Unavailable and the like: this machine cannot, and why. The others: see RuntimeOptions.
absl::StatusOr<std::shared_ptr<fabric::Fabric>> CreateFabric(absl::string_view scheme,
                                                             const std::string& rdma_device = "",
                                                             std::optional<uint8_t> rdma_traffic_class = {},
                                                             RdmaGrants rdma_grants = RdmaGrants::kAutomatic);

// What to give to CreateFabric() as its device, so that it serves connections from `local`, or, if that is
// AF_UNSPEC, by the route to `remote`. Empty: there is no choice, or the user has made it
// (HAWSER_RDMA_DEVICE).
std::string DeviceFor(absl::string_view scheme, const SocketAddress& local, const SocketAddress& remote);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_FABRICS_H_
