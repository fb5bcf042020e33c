#include "hawser/transport/fabrics.h"

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/tcp_fabric.h"

namespace hawser::transport {

absl::StatusOr<std::shared_ptr<fabric::Fabric>> CreateFabric(absl::string_view scheme) {
  if (scheme == "tcp") return std::shared_ptr<fabric::Fabric>(fabric::CreateTcpFabric());
  return absl::InvalidArgumentError(absl::StrCat("no fabric for \"", scheme, "://\"; there is: tcp://"));
}

}  // namespace hawser::transport
