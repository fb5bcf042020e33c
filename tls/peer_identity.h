#ifndef HAWSER_TLS_PEER_IDENTITY_H_
#define HAWSER_TLS_PEER_IDENTITY_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hawser {

// The identity of a peer: the names that the authorities have certified (the subjectAltName of its
// certificate). The rest of the certificate does not count: the common name of a subject is no name (RFC
// 9525, 6.4.4).
// Thread: a value; const is safe from any thread.
struct PeerIdentity {
  // False: the connection has no credentials. The peer is not authenticated, and everything else is empty.
  bool is_authenticated = false;
  // As in the certificate, in its order. A DNS name may be a pattern ("*.example.org").
  std::vector<std::string> dns_names;
  std::vector<std::string> uris;  // SPIFFE ids are URIs.
  std::vector<std::string> ip_addresses;

  // False: nothing distinguishes this peer from another one without a name.
  bool has_names() const { return !dns_names.empty() || !uris.empty() || !ip_addresses.empty(); }
  bool HasDnsName(absl::string_view name) const;  // Without regard to case; patterns match only themselves.
  bool HasUri(absl::string_view uri) const;       // As it is.

  // "DNS:kv1.example.org, URI:spiffe://example.org/kv"; "not authenticated"; "authenticated without a name".
  // At most 512 bytes, printable, for logs and errors.
  std::string ToString() const;

  // The same names. A certificate that was renewed is the same identity.
  friend bool operator==(const PeerIdentity& a, const PeerIdentity& b) {
    return a.is_authenticated == b.is_authenticated && a.dns_names == b.dns_names && a.uris == b.uris &&
           a.ip_addresses == b.ip_addresses;
  }
};

}  // namespace hawser

#endif  // HAWSER_TLS_PEER_IDENTITY_H_
