#ifndef HAWSER_TLS_HANDSHAKE_TERMS_H_
#define HAWSER_TLS_HANDSHAKE_TERMS_H_

#include "absl/status/statusor.h"
#include "hawser/tls/openssl.h"

namespace hawser::tls {

// An SSL_CTX with the terms on which both sides of Hawser shake hands, whatever the machine's configuration
// of OpenSSL says: TLS 1.3, ALPN "hawser/1", three ciphers, two groups, 112 bits of security and at most 32
// KiB of certificates. Certificates, and what to do about those of the peer, are set by the caller.
// ResourceExhausted: no memory.
absl::StatusOr<SslContextPtr> NewSslContext();

}  // namespace hawser::tls

#endif  // HAWSER_TLS_HANDSHAKE_TERMS_H_
