#include "hawser/tls/handshake_terms.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/tls/certificate.h"

namespace hawser::tls {
namespace {

constexpr unsigned char kAlpn[] = "\x08hawser/1";
constexpr size_t kAlpnBytes = sizeof(kAlpn) - 1;

int SelectAlpn(SSL*, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
               unsigned int in_bytes, void*) {
  unsigned char* selected;
  if (SSL_select_next_proto(&selected, out_bytes, kAlpn, kAlpnBytes, in, in_bytes) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = selected;
  return SSL_TLSEXT_ERR_OK;
}

// A client that does not ask for a protocol would not be asked either.
int RequireAlpn(SSL* ssl, int* alert, void*) {
  const unsigned char* data;
  size_t bytes;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &data, &bytes) ==
      1) {
    return SSL_CLIENT_HELLO_SUCCESS;
  }
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

}  // namespace

absl::StatusOr<SslContextPtr> NewSslContext() {
  ERR_clear_error();
  SslContextPtr context(SSL_CTX_new(TLS_method()));
  if (context == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("TLS: SSL_CTX_new(): ", TakeError().text));
  SSL_CTX* const ssl = context.get();
  SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION);
  // 128 bits first: a third faster, and no less than what the certificates' keys are worth.
  SSL_CTX_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_security_level(ssl, 2);  // 112 bits, whatever the machine's configuration of OpenSSL says.
  // Without finite fields, which OpenSSL offers as well: the peer chooses the group before it is
  // authenticated, and one operation in the largest takes 0.1 s. X25519 takes 0.1 ms.
  if (SSL_CTX_set1_groups_list(ssl, "X25519:P-256") != 1) {
    return absl::ResourceExhaustedError(absl::StrCat("TLS: groups: ", TakeError().text));
  }
  // The end of a connection means nothing to what is above, so it need not be signed (close_notify).
  SSL_CTX_set_options(ssl, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_CIPHER_SERVER_PREFERENCE |
                               SSL_OP_PRIORITIZE_CHACHA | SSL_OP_NO_COMPRESSION);
  SSL_CTX_clear_options(ssl, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_mode(
      ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_max_cert_list(ssl, kCertificatesBytesMax);

  SSL_CTX_set_client_hello_cb(ssl, RequireAlpn, nullptr);
  SSL_CTX_set_alpn_select_cb(ssl, SelectAlpn, nullptr);
  if (SSL_CTX_set_alpn_protos(ssl, kAlpn, kAlpnBytes) != 0) {
    return absl::ResourceExhaustedError("TLS: no memory");
  }
  SSL_CTX_set_session_id_context(ssl, kAlpn, kAlpnBytes);
  return context;
}

}  // namespace hawser::tls
