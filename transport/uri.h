#ifndef HAWSER_TRANSPORT_URI_H_
#define HAWSER_TRANSPORT_URI_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/base/socket_address.h"

namespace hawser::transport {

inline constexpr char kTcpScheme[] = "tcp";
inline constexpr char kRdmaScheme[] = "rdma";
// kPreferredScheme where both sides have it, else kFallbackScheme, which every machine has. No fabric has
// this name.
inline constexpr char kAutoScheme[] = "auto";
inline constexpr const char* kPreferredScheme = kRdmaScheme;
inline constexpr const char* kFallbackScheme = kTcpScheme;

// With credentials, a connection of kProvenScheme is proved by one of kProvingScheme (proof.h).
inline constexpr const char* kProvenScheme = kRdmaScheme;
inline constexpr const char* kProvingScheme = kTcpScheme;

// For errors.
inline constexpr char kSchemes[] = "tcp://, rdma://, auto://";

// "tcp://host:port": which fabric, and where.
struct Uri {
  std::string scheme;
  std::string host;  // A name, an IPv4 address, or an IPv6 address without its brackets.
  uint16_t port = 0;

  std::string ToString() const;
};

// InvalidArgument with what is wrong, and an example of what is right. Port 0 is allowed.
absl::StatusOr<Uri> ParseUri(absl::string_view text);

// "10.0.0.1", "fd00::1" or "fe80::1%eth0" with port 0; no name is looked up. InvalidArgument: it is no such
// address.
absl::StatusOr<SocketAddress> ParseNumericHost(absl::string_view host);

// The numeric addresses of `uri`, in the order to try them; at least one. Blocks while names are looked up,
// so never on a poller. NotFound: no such name; Unavailable: the resolver did not answer.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const Uri& uri);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_URI_H_
