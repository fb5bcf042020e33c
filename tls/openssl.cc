#include "hawser/tls/openssl.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace hawser::tls {

void SslDeleter::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void SslDeleter::operator()(ssl_session_st* session) const { SSL_SESSION_free(session); }
void SslDeleter::operator()(ssl_st* ssl) const { SSL_free(ssl); }

OpenSslError TakeError() {
  OpenSslError error;
  if (const unsigned long code = ERR_get_error(); code != 0) {
    error.library = ERR_GET_LIB(code);
    error.reason = ERR_GET_REASON(code);
    if (const char* const text = ERR_reason_error_string(code); text != nullptr) error.text = text;
  }
  ERR_clear_error();
  return error;
}

}  // namespace hawser::tls
