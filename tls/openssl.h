#ifndef HAWSER_TLS_OPENSSL_H_
#define HAWSER_TLS_OPENSSL_H_

#include <memory>
#include <string>

// OpenSSL's types, their owners and its errors, without OpenSSL's headers.
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

// Why a call of OpenSSL has failed. `library` and `reason` are OpenSSL's numbers: ERR_LIB_SSL, SSL_R_.... The
// text is OpenSSL's as well, "no start line", and says little to a user.
struct OpenSslError {
  int library = 0;  // 0: OpenSSL has reported nothing.
  int reason = 0;
  std::string text = "no reason given";
};

// The first error that OpenSSL has queued on this thread: the cause, of which the others are what it led to.
// Clears the queue.
OpenSslError TakeError();

}  // namespace hawser::tls

#endif  // HAWSER_TLS_OPENSSL_H_
