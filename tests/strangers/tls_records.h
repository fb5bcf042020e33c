#ifndef HAWSER_TESTS_STRANGERS_TLS_RECORDS_H_
#define HAWSER_TESTS_STRANGERS_TLS_RECORDS_H_

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "hawser/tls/credentials.h"

namespace hawser::strangers {

// What the strangers of one server show it. Null: the files cannot be used.
std::shared_ptr<SSL_CTX> NewTlsClient(const TlsCredentials& credentials);

// The client's side of TLS 1.3, without a socket: its owner passes on what has arrived, and what is to be
// sent. It checks nothing, not even who the server is.
// Thread: one.
class TlsRecords {
 public:
  // Each record that is sent after the handshake has at most `record_bytes`.
  TlsRecords(SSL_CTX& context, size_t record_bytes);

  // The handshake is complete.
  bool is_up() const { return SSL_is_init_finished(ssl_.get()) != 0; }

  // Each appends to `out` what is to be sent to the server.
  void Start(std::string& out);
  // `arrived` comes from the server. Appends to `plain` what it says. False: TLS has failed.
  bool Receive(absl::string_view arrived, std::string& plain, std::string& out);
  // Once it is up.
  void Send(absl::string_view bytes, std::string& out);

 private:
  struct Deleter {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  void TakeOut(std::string& out);

  const size_t record_bytes_;
  const std::unique_ptr<SSL, Deleter> ssl_;
};

}  // namespace hawser::strangers

#endif  // HAWSER_TESTS_STRANGERS_TLS_RECORDS_H_
