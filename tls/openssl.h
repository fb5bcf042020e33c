#ifndef HAWSER_TLS_OPENSSL_H_
#define HAWSER_TLS_OPENSSL_H_

#include <memory>

// OpenSSL's types, and their owners, without OpenSSL's headers.
struct bio_st;
struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;

namespace hawser::tls {

struct SslDeleter {
  void operator()(ssl_ctx_st* context) const;
  void operator()(ssl_session_st* session) const;
  void operator()(ssl_st* ssl) const;
};
using SslContextPtr = std::unique_ptr<ssl_ctx_st, SslDeleter>;
using SslSessionPtr = std::unique_ptr<ssl_session_st, SslDeleter>;
using SslPtr = std::unique_ptr<ssl_st, SslDeleter>;

}  // namespace hawser::tls

#endif  // HAWSER_TLS_OPENSSL_H_
