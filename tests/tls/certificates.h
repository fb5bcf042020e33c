#ifndef HAWSER_TESTS_TLS_CERTIFICATES_H_
#define HAWSER_TESTS_TLS_CERTIFICATES_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/tls/credentials.h"

// Authorities and certificates for tests, made by OpenSSL's library within the process: a certificate takes
// well under a millisecond to make, except for its key if that is RSA (0.1 s).
namespace hawser {

enum class KeyType { kP256, kRsa2048, kEd25519, kP384, kP224, kRsa1024 };

// What a certificate says of its owner. Each text becomes the bytes of the certificate as it is, also one
// with a NUL or with bytes that are not ASCII.
struct CertificateNames {
  std::vector<std::string> dns;
  std::vector<std::string> uris;
  std::vector<std::string> ips;  // "127.0.0.1", "::1".
  std::string common_name;       // The subject's. Hawser takes it for no name.
};

// "localhost", 127.0.0.1 and ::1.
CertificateNames LoopbackNames();

struct CertificateOptions {
  KeyType key_type = KeyType::kP256;
  // From now. Certificates know whole seconds only: `not_after` is rounded down.
  absl::Duration not_before = -absl::Hours(1);
  absl::Duration not_after = absl::Hours(24);
  std::string key_usage = "critical,digitalSignature";
  std::string extended_key_usage;  // "serverAuth", "clientAuth,serverAuth". Empty: no such extension.
  size_t padding_bytes = 0;  // An extension of so many bytes means nothing, and makes the certificate larger.
  bool is_self_signed = false;    // It is issued by itself instead of by the authority.
  bool has_other_key = false;     // The key in the file does not fit the certificate.
  bool has_intermediates = true;  // The file of the certificate has those of intermediate authorities, too.
  std::string passphrase;         // If it is not empty, the file of the key is encrypted with it.
  // The file of authorities. Empty: that of the root.
  std::string authorities;
  std::string server_name;  // As it gets into the credentials.

  // The files to write the certificate and the key to: to renew them. Empty: new files of the authority's
  // folder.
  std::string certificate_path;
  std::string key_path;
  // The files are replaced by rename(2). False: they are overwritten.
  bool replaces_files = true;
};

struct AuthorityOptions {
  KeyType key_type = KeyType::kP256;
  absl::Duration not_before = -absl::Hours(1);
  absl::Duration not_after = absl::Hours(24);
  size_t padding_bytes = 0;
};

// An authority that issues certificates. Copies are the same authority. An error ends the process.
// Thread:   one at a time.
// Lifetime: the files of an authority, and of those below it, last as long as one of their objects.
class CertificateAuthority {
 public:
  explicit CertificateAuthority(const std::string& name = "test authority",
                                const AuthorityOptions& options = {});

  // A certificate with its key, in files.
  TlsCredentials Issue(const CertificateNames& names, const CertificateOptions& options = {}) const;
  // With LoopbackNames().
  TlsCredentials Issue() const;
  // An authority whose certificate is issued by this one.
  CertificateAuthority Intermediate(const std::string& name, const AuthorityOptions& options = {}) const;

  // The file with the certificate of the root of this authority.
  const std::string& authorities_path() const;
  // A new path in the folder of the root, of which `name` is a part.
  std::string NewPath(absl::string_view name) const;
  // The certificate of this authority itself, in PEM.
  const std::string& pem() const;

 private:
  struct State;
  explicit CertificateAuthority(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

std::string ReadFile(const std::string& path);
// Replaces the file by rename(2).
void ReplaceFile(const std::string& path, absl::string_view contents);
// Writes into the file that is there.
void OverwriteFile(const std::string& path, absl::string_view contents);
// Makes it look as if it was last changed an hour ago or before.
void MakeOld(const std::string& path);

}  // namespace hawser

#endif  // HAWSER_TESTS_TLS_CERTIFICATES_H_
