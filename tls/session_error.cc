#include "hawser/tls/session_error.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cerrno>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/violation.h"
#include "hawser/tls/openssl.h"

namespace hawser::tls {
namespace {

constexpr absl::string_view kMalformed = "what the peer has sent is malformed, or was changed on its way: ";

// What an alert of the peer means (RFC 8446, 6.2).
absl::string_view MeaningOf(int alert) {
  switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
      return "it does not accept our certificate (bad_certificate)";
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
      return "our certificate may not be used for this (unsupported_certificate): see its keyUsage and "
             "extendedKeyUsage";
    case SSL_AD_CERTIFICATE_REVOKED:
      return "our certificate is revoked (certificate_revoked)";
    case SSL_AD_CERTIFICATE_EXPIRED:
      return "our certificate has expired, or is not valid yet by its clock (certificate_expired)";
    case SSL_AD_CERTIFICATE_UNKNOWN:
      return "it does not accept our certificate (certificate_unknown)";
    case SSL_AD_UNKNOWN_CA:
      return "none of its authorities has issued our certificate (unknown_ca)";
    case SSL_AD_ACCESS_DENIED:
      return "it denies us access (access_denied)";
    case SSL_AD_PROTOCOL_VERSION:
      return "it does not speak TLS 1.3 (protocol_version)";
    case SSL_AD_HANDSHAKE_FAILURE:
      return "it has no cipher or signature algorithm in common with us (handshake_failure)";
    case TLS13_AD_CERTIFICATE_REQUIRED:
      return "it wants a certificate, and we have sent none (certificate_required)";
    case SSL_AD_NO_APPLICATION_PROTOCOL:
      return "it is no Hawser server or client: it does not speak ALPN \"hawser/1\" "
             "(no_application_protocol)";
    case SSL_AD_DECRYPT_ERROR:
      return "it could not verify our signature (decrypt_error)";
    default:
      return "";
  }
}

}  // namespace

absl::Status SessionError(const SessionFailure& failure) {
  const OpenSslError error = TakeError();
  const auto refuse = [&](absl::string_view why) { return RefusalError(failure.is_done, why); };
  if (!failure.refused.empty()) return refuse(failure.refused);
  if (failure.hello_is_too_long) return refuse("its ClientHello is too long: 16 KiB are accepted");
  const int reason = error.library == ERR_LIB_SSL ? error.reason : 0;
  if (reason > SSL_AD_REASON_OFFSET) return AlertError(reason - SSL_AD_REASON_OFFSET);
  if (!failure.not_tls.empty()) {
    return refuse(absl::StartsWith(failure.not_tls, "\x89HAWSER")
                      ? "the peer speaks Hawser without TLS: it has no credentials"
                      : absl::StrCat("the peer does not speak TLS; it sent \"",
                                     absl::CHexEscape(failure.not_tls), "\""));
  }
  switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return refuse("the peer has sent no certificate");
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
      return refuse("the peer does not speak TLS 1.3");
    case SSL_R_CALLBACK_FAILED:  // See RequireAlpn() in handshake_terms.cc.
    case SSL_R_NO_APPLICATION_PROTOCOL:
      return refuse("the peer does not speak ALPN \"hawser/1\": it is no Hawser server or client");
    case SSL_R_EXCESSIVE_MESSAGE_SIZE:
      return refuse("what the peer has sent is too long; of certificates, 32 KiB are accepted");
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_GROUPS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
      return refuse("the peer has no cipher, group or signature algorithm in common with us");
    default:
      break;
  }
  if (error.library != 0) return refuse(absl::StrCat(kMalformed, error.text));
  if (failure.could_not_answer) return KeyChangeError();
  if (failure.socket_errno == ENOBUFS)
    return refuse("the peer asks for new keys, and does not read the answers");
  return absl::UnavailableError(absl::StrCat(
      "TLS: the peer ", failure.is_done ? "" : "ended the handshake: it ",
      failure.socket_errno == 0 ? "closed the connection"
                                : absl::StrCat("is lost: ", DescribeErrno(failure.socket_errno))));
}

absl::Status RefusalError(bool is_done, absl::string_view why) {
  const std::string text = absl::StrCat("TLS: ", why);
  absl::Status status = is_done ? absl::DataLossError(text) : absl::UnauthenticatedError(text);
  SetViolation(status, Violation::kTls);
  return status;
}

absl::Status AlertError(int alert) {
  std::string meaning(MeaningOf(alert));
  if (meaning.empty()) meaning = absl::StrCat("alert ", alert, " (", SSL_alert_desc_string_long(alert), ")");
  return RefusalError(false, absl::StrCat("the peer has refused: ", meaning));
}

absl::Status MalformedError(absl::string_view why) {
  return RefusalError(true, absl::StrCat(kMalformed, why));
}

absl::Status KeyChangeError() {
  return absl::UnavailableError("TLS: the peer changes its keys, which the kernel of this side cannot");
}

absl::Status WornKeyError(uint64_t records) {
  return absl::UnavailableError(
      absl::StrCat("TLS: the key of this side has reached its limit, after ", records,
                   " records, and its kernel cannot change it: see KernelUse::kAlways"));
}

}  // namespace hawser::tls
