#include "hawser/tls/peer_check.h"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "hawser/tls/certificate.h"
#include "hawser/tls/session_error.h"

namespace hawser::tls {

std::string WhyRefused(bool ok, X509_STORE_CTX& verification, Side side, const ServerName& server_name) {
  X509* const certificate = X509_STORE_CTX_get_current_cert(&verification);
  const bool is_own = X509_STORE_CTX_get_error_depth(&verification) == 0;
  std::string too_many_names;
  if (ok && is_own && certificate != nullptr) {
    const PeerIdentity identity = IdentityOf(*certificate);
    too_many_names = TooManyNames(identity);
    if (!too_many_names.empty()) {
      X509_STORE_CTX_set_error(&verification, X509_V_ERR_UNSUPPORTED_NAME_SYNTAX);
      ok = false;
    } else if (!server_name.Allows(identity)) {
      X509_STORE_CTX_set_error(&verification, X509_V_ERR_HOSTNAME_MISMATCH);
      ok = false;
    }
  }
  if (ok) return "";
  const std::string who = certificate == nullptr
                              ? ""
                              : absl::StrCat(is_own ? "its " : "in the chain of its certificate, the ",
                                             DescribeCertificate(*certificate), ": ");
  if (!too_many_names.empty()) return absl::StrCat(who, too_many_names);
  switch (const int error = X509_STORE_CTX_get_error(&verification)) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::StrCat(who, DescribeExpired(*certificate, absl::Now()));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::StrCat(who, DescribeNotYetValid(*certificate, absl::Now()));
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      return absl::StrCat(who, "it is self-signed, and none of TlsCredentials::authorities");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return absl::StrCat(
          who, "none of TlsCredentials::authorities has issued it, and it came without a chain of ",
          "intermediate authorities that leads to one");
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return absl::StrCat(
          who, "it is not for \"", server_name.text,
          "\": connect by a name that it has, or say in TlsCredentials::server_name which one to expect");
    case X509_V_ERR_INVALID_PURPOSE:
      return absl::StrCat(who, "its extendedKeyUsage does not allow it for a ",
                          side == Side::kClient ? "server" : "client");
    default:
      return absl::StrCat(who, X509_verify_cert_error_string(error));
  }
}

absl::StatusOr<PeerIdentity> CheckPeer(const SSL& connection, const ServerName& server_name) {
  const auto refuse = [](absl::string_view why) { return RefusalError(false, why); };
  const unsigned char* protocol = nullptr;
  unsigned protocol_bytes = 0;
  SSL_get0_alpn_selected(&connection, &protocol, &protocol_bytes);
  if (protocol == nullptr)
    return refuse("the peer did not ask for ALPN \"hawser/1\": it is no Hawser server or client");
  const X509* const certificate = SSL_get0_peer_certificate(&connection);
  if (certificate == nullptr || SSL_get_verify_result(&connection) != X509_V_OK) {
    return refuse("the peer has sent no certificate");
  }
  PeerIdentity identity = IdentityOf(*certificate);
  // Neither is looked at again when a session is resumed.
  if (EndOf(*certificate) <= absl::Now() || !server_name.Allows(identity)) {
    return refuse(absl::StrCat("its ", DescribeCertificate(*certificate),
                               ": it has expired, or is not for \"", server_name.text, "\""));
  }
  return identity;
}

}  // namespace hawser::tls
