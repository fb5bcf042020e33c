#include "hawser/tls/server_name.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hawser::tls {
namespace {

bool IsIpAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 || inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

}  // namespace

absl::StatusOr<ServerName> ExpectServerName(SSL& connection, std::string name) {
  // The scope of a link-local address says how it is reached, not whose it is.
  if (const size_t scope = name.find('%'); scope != std::string::npos && absl::StrContains(name, ':')) {
    if (IsIpAddress(name.substr(0, scope))) name.resize(scope);
  }
  bool named = false, is_uri = false;
  if (IsIpAddress(name)) {
    named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(&connection), name.c_str()) == 1;
  } else if (absl::StrContains(name, ':')) {
    named = is_uri = true;
  } else {
    // RFC 9525: no wildcard but a whole label, and a name that ends in a dot is the same as one without.
    if (absl::EndsWith(name, ".")) name.pop_back();
    SSL_set_hostflags(&connection,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    // To OpenSSL a dot in front means any name below.
    named = !name.empty() && name.front() != '.' && name.find('\0') == std::string::npos &&
            SSL_set1_host(&connection, name.c_str()) == 1 &&
            SSL_set_tlsext_host_name(&connection, name.c_str()) == 1;
  }
  if (!named) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        absl::StrCat("TLS: \"", name.substr(0, 256),
                     "\" is no name that a certificate can have: no DNS name, IP address or URI"));
  }
  return ServerName{.text = std::move(name), .is_uri = is_uri};
}

}  // namespace hawser::tls
