#ifndef HAWSER_TLS_CERTIFICATE_H_
#define HAWSER_TLS_CERTIFICATE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/tls/peer_identity.h"

struct stack_st_X509;
struct x509_st;

namespace hawser::tls {

// The names of a certificate that was verified. Names that are not printable ASCII are left out: no such DNS
// name or URI exists (RFC 5280, 4.2.1.6), and one with a zero byte is an attack.
PeerIdentity IdentityOf(const x509_st& certificate);

// The most that a peer may send as its certificates. OpenSSL's own limit is 100 KiB, which each peer that is
// not known yet could make this side hold. Chains of RSA with 4,096 bits take some 6 KiB.
inline constexpr long kCertificatesBytesMax = 32 * 1024;

// A connection keeps the names of its peer, which each peer that has a certificate could make it hold. An
// honest certificate has a few.
inline constexpr size_t kNamesMax = 64;
inline constexpr size_t kNameBytesMax = 4096;  // In all.

// Empty, or why a certificate with these names is refused: "it has 100 names of 2500 bytes in all, and 64
// names of 4096 bytes are accepted".
std::string TooManyNames(const PeerIdentity& identity);

// For errors, about a certificate that may be anything: "certificate of DNS:kv1.example.org, subject CN=kv1,
// issued by CN=example authority". At most 256 bytes for each of the three, printable.
std::string DescribeCertificate(const x509_st& certificate);

// When the certificate, or the first of a chain, ends to be valid. InfinitePast: one of them does not say.
absl::Time EndOf(const x509_st& certificate);
absl::Time EndOf(const stack_st_X509& chain);
absl::Time BeginOf(const x509_st& certificate);

// For errors: "it has expired at 2024-05-01T00:00:00+00:00, by our clock it is ...", and "it is not valid
// before ..., by our clock it is ...".
std::string DescribeExpired(const x509_st& certificate, absl::Time now);
std::string DescribeNotYetValid(const x509_st& certificate, absl::Time now);
// The part of an error that stays the same while its cause does: what is before ", by our clock it is".
absl::string_view WithoutOurClock(absl::string_view error);

}  // namespace hawser::tls

#endif  // HAWSER_TLS_CERTIFICATE_H_
