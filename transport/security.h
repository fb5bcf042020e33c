#ifndef HAWSER_TRANSPORT_SECURITY_H_
#define HAWSER_TRANSPORT_SECURITY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::tls {
class Context;
}

namespace hawser::transport {

class Runtime;

// How the side that dials a connection authenticates the peer and itself. The default: it does not, and the
// connection is not encrypted.
struct Security {
  std::shared_ptr<tls::Context> tls;
  // The host of the URI, before it was resolved: what the peer's certificate must be for, unless the
  // credentials name another (TlsCredentials::server_name).
  std::string host;
  // For a connection over a fabric without TLS: the runtime over which it is proved by TLS (prover.h), and
  // its own.
  std::shared_ptr<Runtime> prove_over = nullptr;
  std::shared_ptr<Runtime> runtime = nullptr;
};

// OK, or Unimplemented: no connection over `fabric` can have TLS.
absl::Status CheckCarriesTls(const fabric::Fabric& fabric);

// `identity`; for null one that is not authenticated. Never null.
std::shared_ptr<const PeerIdentity> OrNotAuthenticated(std::shared_ptr<const PeerIdentity> identity);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SECURITY_H_
