#ifndef HAWSER_TLS_SERVER_NAME_H_
#define HAWSER_TLS_SERVER_NAME_H_

#include <string>

#include "absl/status/statusor.h"
#include "hawser/tls/openssl.h"
#include "hawser/tls/peer_identity.h"

namespace hawser::tls {

// The name that a client wants the server's certificate to have: a DNS name, an IP address or a URI. OpenSSL
// compares the first two, and does not know the third.
struct ServerName {
  std::string text;
  bool is_uri = false;

  // False: it is a URI that is none of these. Whether a name of another kind fits is left to OpenSSL.
  bool Allows(const PeerIdentity& identity) const { return !is_uri || identity.HasUri(text); }
};

// Makes `connection`, of a client, accept only a server with that name, except that a URI is left to
// ServerName::Allows(). InvalidArgument: it is a name that no certificate can have.
absl::StatusOr<ServerName> ExpectServerName(ssl_st& connection, std::string name);

}  // namespace hawser::tls

#endif  // HAWSER_TLS_SERVER_NAME_H_
