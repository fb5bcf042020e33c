#ifndef HAWSER_TLS_PEM_FILE_H_
#define HAWSER_TLS_PEM_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace hawser::tls {

enum class PemKind { kCertificate, kPrivateKey };

// Why a file with these contents has no certificate, or no private key, that can be read; for a file that
// OpenSSL refuses, which says "no start line" of most. For an error: "it is DER, not PEM: ...". Nothing of
// what is in the file is quoted.
std::string WhyUnreadable(absl::string_view contents, PemKind wanted);

}  // namespace hawser::tls

#endif  // HAWSER_TLS_PEM_FILE_H_
