#ifndef HAWSER_TLS_PEER_CHECK_H_
#define HAWSER_TLS_PEER_CHECK_H_

#include <string>

#include "absl/status/statusor.h"
#include "hawser/tls/openssl.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/tls/server_name.h"
#include "hawser/tls/side.h"

struct x509_store_ctx_st;

// Whether a peer is one that this side wants: what OpenSSL does not look at, and what its verdict means.
namespace hawser::tls {

// OpenSSL asks for each certificate of the peer's chain, from the authority's down, and for each thing that
// is wrong with one (`ok` is false). Returns why the peer is refused, and what to do about it; then the error
// of `verification` decides which alert the peer gets. Empty: nothing is wrong so far.
std::string WhyRefused(bool ok, x509_store_ctx_st& verification, Side side, const ServerName& server_name);

// Who the peer is. Call it when the handshake of `connection` is done, also when that resumed a session, for
// which OpenSSL looks at no certificate. Unauthenticated, with Violation::kTls: it is refused, too late for
// an alert that says why.
absl::StatusOr<PeerIdentity> CheckPeer(const ssl_st& connection, const ServerName& server_name);

}  // namespace hawser::tls

#endif  // HAWSER_TLS_PEER_CHECK_H_
