#ifndef HAWSER_TRANSPORT_FABRICS_H_
#define HAWSER_TRANSPORT_FABRICS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// The fabric that serves URIs of `scheme`: the one place that knows which there are. InvalidArgument: none
// does. Unavailable and the like: this machine cannot, and why. `rdma_device`: see RuntimeOptions.
absl::StatusOr<std::shared_ptr<fabric::Fabric>> CreateFabric(absl::string_view scheme,
                                                             const std::string& rdma_device = "");

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_FABRICS_H_
