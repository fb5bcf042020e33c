#include "hawser/transport/fabrics.h"

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/tcp_fabric.h"
#include "hawser/transport/fabric/verbs_fabric.h"
#include "hawser/transport/uri.h"

namespace hawser::transport {

absl::StatusOr<std::shared_ptr<fabric::Fabric>> CreateFabric(absl::string_view scheme,
                                                             const std::string& rdma_device) {
  if (scheme == kTcpScheme) return std::shared_ptr<fabric::Fabric>(fabric::CreateTcpFabric());
  if (scheme == kRdmaScheme) return fabric::NewVerbsFabric({.device = rdma_device});
  return absl::InvalidArgumentError(absl::StrCat("no fabric for \"", scheme, "://\"; there are: ", kTcpScheme,
                                                 "://, ", kRdmaScheme, "://"));
}

}  // namespace hawser::transport
