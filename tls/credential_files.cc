#include "hawser/tls/credential_files.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tls/certificate.h"
#include "hawser/tls/pem_file.h"

namespace hawser::tls {
namespace {

// The most that each of the three files may have, since a poller's thread may read it. The authorities that
// browsers trust have 0.3 MB.
constexpr off_t kFileBytesMax = 4 << 20;

// A file that changed so recently can change again without a new time stamp: kernels count in ticks of up to
// 10 ms.
constexpr int64_t kSettledNs = 100'000'000;

absl::Status FileError(absl::string_view what, const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("TlsCredentials::", what, ": ", path, ": ", why));
}

// For a path that leads to no file.
absl::string_view KindOf(mode_t mode) {
  return S_ISDIR(mode)                    ? "a folder"
         : S_ISFIFO(mode)                 ? "a pipe"
         : S_ISSOCK(mode)                 ? "a socket"
         : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                          : "something else";
}

// The file can be opened and read without waiting for another process, and in short time.
absl::Status CheckFile(absl::string_view what, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TlsCredentials::", what, " is empty: it is the path of a PEM file"));
  }
  // Without O_NONBLOCK the open of a pipe waits until something opens it to write.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  const int error = file.is_open() ? 0 : errno;
  struct stat info = {};
  // A socket cannot be opened.
  const int looked = file.is_open() ? fstat(file.get(), &info) : stat(path.c_str(), &info);
  if (looked == 0 && !S_ISREG(info.st_mode)) {
    return FileError(
        what, path,
        absl::StrCat("it is ", KindOf(info.st_mode),
                     ", and has to be a file, since it is read again when it changes",
                     S_ISFIFO(info.st_mode) ? ": write what comes through the pipe to a file" : ""));
  }
  if (error != 0) return FileError(what, path, DescribeErrno(error));
  if (looked == 0 && info.st_size > kFileBytesMax) {
    return FileError(
        what, path,
        absl::StrCat("it has ", info.st_size, " bytes, and ", kFileBytesMax, " at most are read"));
  }
  return absl::OkStatus();
}

// The beginning of a file: more than any certificate has.
std::string ReadBeginning(const std::string& path) {
  std::string contents(1 << 20, '\0');
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  contents.resize(file == nullptr ? 0 : std::fread(contents.data(), 1, contents.size(), file.get()));
  return contents;
}

// What TLS 1.3 can sign a handshake with (RFC 8446, 4.2.3), of what OpenSSL takes for a certificate.
bool CanSign(const EVP_PKEY* key) {
  if (key == nullptr || EVP_PKEY_is_a(key, "EC") != 1) {
    return key != nullptr && (EVP_PKEY_is_a(key, "RSA") == 1 || EVP_PKEY_is_a(key, "RSA-PSS") == 1 ||
                              EVP_PKEY_is_a(key, "ED25519") == 1 || EVP_PKEY_is_a(key, "ED448") == 1);
  }
  char group[64] = "";
  if (EVP_PKEY_get_group_name(key, group, sizeof(group), nullptr) != 1) return false;
  const int nid = OBJ_txt2nid(group);
  return nid == NID_X9_62_prime256v1 || nid == NID_secp384r1 || nid == NID_secp521r1;
}

constexpr absl::string_view kCannotSign =
    "TLS 1.3 cannot sign with its key: take RSA, ECDSA on P-256, P-384 or P-521, Ed25519 or Ed448";

// Why a file cannot be used, and what to do about it. OpenSSL's own texts ("no start line") do not name the
// mistake.
std::string InOurWords(const OpenSslError& error, const std::string& path, PemKind wanted) {
  if (error.library == ERR_LIB_SSL) {
    switch (error.reason) {
      case SSL_R_EE_KEY_TOO_SMALL:
      case SSL_R_CA_KEY_TOO_SMALL:
        return absl::StrCat("the key of ", error.reason == SSL_R_EE_KEY_TOO_SMALL ? "its" : "an authority's",
                            " certificate is too small: RSA needs 2048 bits, ECDSA 256");
      case SSL_R_CA_MD_TOO_WEAK:
        return "it is signed by way of a digest that is too weak, such as SHA-1: have it issued with SHA-256";
      case SSL_R_UNKNOWN_CERTIFICATE_TYPE:
        return std::string(kCannotSign);
      default:
        break;
    }
  }
  return WhyUnreadable(ReadBeginning(path), wanted);
}

// A key that is encrypted: OpenSSL would ask for the password on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

// What the peer gets to see of this side's certificates.
size_t BytesOfCertificates(SSL_CTX* context) {
  size_t bytes = 0;
  const auto add = [&](X509* certificate) {
    bytes += static_cast<size_t>(std::max(i2d_X509(certificate, nullptr), 0));
  };
  add(SSL_CTX_get0_certificate(context));
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(context, &chain);
  for (int i = 0; i < sk_X509_num(chain); ++i) add(sk_X509_value(chain, i));
  return bytes;
}

}  // namespace

CredentialFiles::CredentialFiles(const TlsCredentials& credentials)
    : certificate_(credentials.certificate), key_(credentials.key), authorities_(credentials.authorities) {}

CredentialFiles::Stamps CredentialFiles::Look() const {
  const int64_t now_ns = absl::ToUnixNanos(absl::Now());
  const auto look = [&](const std::string& path) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) return Stamp{};
    Stamp stamp = {.device = info.st_dev,
                   .inode = info.st_ino,
                   .bytes = info.st_size,
                   .modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
    if (now_ns - stamp.modified_ns < kSettledNs) stamp.bytes = -1;
    return stamp;
  };
  return {.certificate = look(certificate_), .key = look(key_), .authorities = look(authorities_)};
}

absl::Status CredentialFiles::CheckReadable() const {
  for (const auto& [what, path] :
       {std::pair<absl::string_view, const std::string&>("certificate", certificate_),
        {"key", key_},
        {"authorities", authorities_}}) {
    if (absl::Status status = CheckFile(what, path); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CredentialFiles::ReadInto(SSL_CTX& context) const {
  ERR_clear_error();
  SSL_CTX_set_default_passwd_cb(&context, NoPassword);
  if (SSL_CTX_use_certificate_chain_file(&context, certificate_.c_str()) != 1) {
    return FileError("certificate", certificate_,
                     InOurWords(TakeError(), certificate_, PemKind::kCertificate));
  }
  if (!CanSign(X509_get0_pubkey(SSL_CTX_get0_certificate(&context)))) {
    return FileError("certificate", certificate_, kCannotSign);
  }
  if (const size_t bytes = BytesOfCertificates(&context);
      bytes > static_cast<size_t>(kCertificatesBytesMax)) {
    return FileError(
        "certificate", certificate_,
        absl::StrCat(bytes, " bytes of certificates, of which peers accept ", kCertificatesBytesMax));
  }
  if (const std::string why = TooManyNames(IdentityOf(*SSL_CTX_get0_certificate(&context))); !why.empty()) {
    return FileError("certificate", certificate_, why);
  }
  if (SSL_CTX_use_PrivateKey_file(&context, key_.c_str(), SSL_FILETYPE_PEM) != 1) {
    const OpenSslError error = TakeError();
    return FileError(
        "key", key_,
        absl::StrContains(error.text, "mismatch") ? "it is not the key of the certificate"
        : absl::StrContains(error.text, "password") || absl::StrContains(error.text, "interrupted")
            ? "it is encrypted: give one that is not, and let nobody else read it"
            : InOurWords(error, key_, PemKind::kPrivateKey));
  }
  if (SSL_CTX_check_private_key(&context) != 1) {
    ERR_clear_error();
    return FileError("key", key_, "it is not the key of the certificate");
  }
  if (SSL_CTX_load_verify_locations(&context, authorities_.c_str(), nullptr) != 1) {
    return FileError("authorities", authorities_,
                     InOurWords(TakeError(), authorities_, PemKind::kCertificate));
  }
  return absl::OkStatus();
}

absl::Status CredentialFiles::CheckServes(const SSL_CTX& context) const {
  X509* const certificate = SSL_CTX_get0_certificate(&context);
  const auto refuse = [&](absl::string_view why) {
    return FileError("certificate", certificate_,
                     absl::StrCat("no server can use this ", DescribeCertificate(*certificate), ": ", why));
  };
  const absl::Time now = absl::Now();
  if (EndOf(*certificate) <= now) return refuse(DescribeExpired(*certificate, now));
  if (BeginOf(*certificate) > now) return refuse(DescribeNotYetValid(*certificate, now));
  if ((X509_get_key_usage(certificate) & KU_DIGITAL_SIGNATURE) == 0) {
    return refuse("its keyUsage does not allow digitalSignature, which TLS 1.3 needs to prove the identity");
  }
  if (X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) != 1) {
    return refuse("its extendedKeyUsage does not allow it for a server (serverAuth)");
  }
  if (!IdentityOf(*certificate).has_names()) {
    return refuse("it has no subjectAltName: clients look for the name of the server there only");
  }
  return absl::OkStatus();
}

}  // namespace hawser::tls
