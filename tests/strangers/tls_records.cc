#include "hawser/tests/strangers/tls_records.h"

#include <openssl/bio.h>
#include <openssl/err.h>

#include <algorithm>
#include <array>

namespace hawser::strangers {
namespace {

constexpr size_t kRecordBytesMax = 16 << 10;  // RFC 8446, 5.1.

}  // namespace

std::shared_ptr<SSL_CTX> NewTlsClient(const TlsCredentials& credentials) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  static constexpr unsigned char kAlpn[] = {8, 'h', 'a', 'w', 's', 'e', 'r', '/', '1'};
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_use_certificate_chain_file(context.get(), credentials.certificate.c_str()) != 1 ||
      SSL_CTX_use_PrivateKey_file(context.get(), credentials.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_set_alpn_protos(context.get(), kAlpn, sizeof(kAlpn)) != 0) {
    ERR_clear_error();
    return nullptr;
  }
  return context;
}

TlsRecords::TlsRecords(SSL_CTX& context, size_t record_bytes)
    : record_bytes_(std::min(record_bytes, kRecordBytesMax)), ssl_(SSL_new(&context)) {
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_connect_state(ssl_.get());
}

void TlsRecords::Start(std::string& out) {
  SSL_do_handshake(ssl_.get());
  TakeOut(out);
}

bool TlsRecords::Receive(absl::string_view arrived, std::string& plain, std::string& out) {
  ERR_clear_error();
  BIO_write(SSL_get_rbio(ssl_.get()), arrived.data(), static_cast<int>(arrived.size()));
  int n = is_up() ? 1 : SSL_do_handshake(ssl_.get());
  std::array<char, kRecordBytesMax> record;
  while (n > 0 && (n = SSL_read(ssl_.get(), record.data(), record.size())) > 0) {
    plain.append(record.data(), static_cast<size_t>(n));
  }
  const bool goes_on = SSL_get_error(ssl_.get(), n) == SSL_ERROR_WANT_READ;
  ERR_clear_error();
  TakeOut(out);
  return goes_on;
}

void TlsRecords::Send(absl::string_view bytes, std::string& out) {
  for (size_t at = 0; at < bytes.size(); at += record_bytes_) {
    const size_t length = std::min(record_bytes_, bytes.size() - at);
    SSL_write(ssl_.get(), bytes.data() + at, static_cast<int>(length));
  }
  TakeOut(out);
}

void TlsRecords::TakeOut(std::string& out) {
  BIO* const bio = SSL_get_wbio(ssl_.get());
  char* bytes = nullptr;
  const long length = BIO_get_mem_data(bio, &bytes);
  if (length > 0) out.append(bytes, static_cast<size_t>(length));
  (void)BIO_reset(bio);
}

}  // namespace hawser::strangers
