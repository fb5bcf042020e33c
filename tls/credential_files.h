#ifndef HAWSER_TLS_CREDENTIAL_FILES_H_
#define HAWSER_TLS_CREDENTIAL_FILES_H_

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "hawser/tls/credentials.h"
#include "hawser/tls/openssl.h"

namespace hawser::tls {

// The three files of TlsCredentials: whether they have changed, and what is in them.
// Thread:  any. Each method waits for a disk.
// Failure: InvalidArgument, whose text names the file and says why in words of ours, since OpenSSL's ("no
//          start line") do not name the mistake.
class CredentialFiles {
 public:
  explicit CredentialFiles(const TlsCredentials& credentials);

  // What shows that a file has changed, also one that a symbolic link leads to.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t bytes = 0;  // -1: this stamp is equal to none that is taken later.
    int64_t modified_ns = 0;
    friend bool operator==(const Stamp& a, const Stamp& b) {
      return a.device == b.device && a.inode == b.inode && a.bytes == b.bytes &&
             a.modified_ns == b.modified_ns;
    }
  };
  struct Stamps {
    Stamp certificate, key, authorities;
    friend bool operator==(const Stamps& a, const Stamps& b) {
      return a.certificate == b.certificate && a.key == b.key && a.authorities == b.authorities;
    }
  };
  Stamps Look() const;

  // Each file can be opened and read without waiting for another process, and in short time.
  absl::Status CheckReadable() const;

  // Reads the certificate, its key and the authorities into `context`, whose other settings are made before.
  // Call CheckReadable() first. Refuses also what no peer could accept: a certificate that is too long, has
  // too many names, or with whose key TLS 1.3 cannot sign.
  absl::Status ReadInto(ssl_ctx_st& context) const;

  // What ReadInto() has read can serve. Refuses what no client could accept from any authority: a certificate
  // that is not valid now, has no name, or does not allow this use. WithoutOurClock() of the error stays the
  // same while the files do.
  absl::Status CheckServes(const ssl_ctx_st& context) const;

 private:
  const std::string certificate_, key_, authorities_;  // Their paths.
};

}  // namespace hawser::tls

#endif  // HAWSER_TLS_CREDENTIAL_FILES_H_
