#include "hawser/tests/tls/certificates.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace hawser {
namespace {

struct Deleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
  void operator()(ASN1_OCTET_STRING* string) const { ASN1_OCTET_STRING_free(string); }
  void operator()(ASN1_OBJECT* object) const { ASN1_OBJECT_free(object); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;

void Require(bool is_so, absl::string_view what) {
  if (is_so) return;
  fprintf(stderr, "certificates: %s\n", std::string(what).c_str());
  ERR_print_errors_fp(stderr);
  abort();
}

Owned<EVP_PKEY> NewKey(KeyType type) {
  Owned<EVP_PKEY> key;
  if (type == KeyType::kP256) key.reset(EVP_EC_gen("P-256"));
  if (type == KeyType::kP384) key.reset(EVP_EC_gen("P-384"));
  if (type == KeyType::kP224) key.reset(EVP_EC_gen("P-224"));
  if (type == KeyType::kRsa1024) key.reset(EVP_RSA_gen(1024));
  if (type == KeyType::kRsa2048) key.reset(EVP_RSA_gen(2048));
  if (type == KeyType::kEd25519) key.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  Require(key != nullptr, "no key");
  return key;
}

void Sign(X509* certificate, EVP_PKEY* key) {
  const EVP_MD* digest = EVP_PKEY_is_a(key, "ED25519") == 1 ? nullptr : EVP_sha256();
  Require(X509_sign(certificate, key, digest) > 0, "cannot sign");
}

void SetSubject(X509* certificate, const std::string& common_name) {
  if (common_name.empty()) return;
  Require(X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                     reinterpret_cast<const unsigned char*>(common_name.data()),
                                     static_cast<int>(common_name.size()), -1, 0) == 1,
          "no subject");
}

// One of those that openssl-x509v3_config(5) describes.
void AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  Require(extension != nullptr, absl::StrCat("no extension ", value));
  Require(X509_add_ext(certificate, extension.get(), -1) == 1, "cannot add an extension");
}

void AddName(GENERAL_NAMES* names, int type, const std::string& text) {
  GENERAL_NAME* const name = GENERAL_NAME_new();
  ASN1_STRING* const value = type == GEN_IPADD ? a2i_IPADDRESS(text.c_str()) : ASN1_IA5STRING_new();
  Require(value != nullptr, absl::StrCat("no address: ", text));
  if (type != GEN_IPADD) {
    Require(ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) == 1, "no memory");
  }
  GENERAL_NAME_set0_value(name, type, value);
  Require(sk_GENERAL_NAME_push(names, name) > 0, "no memory");
}

void AddNames(X509* certificate, const CertificateNames& names) {
  const Owned<GENERAL_NAMES> all(GENERAL_NAMES_new());
  for (const std::string& name : names.dns) AddName(all.get(), GEN_DNS, name);
  for (const std::string& name : names.uris) AddName(all.get(), GEN_URI, name);
  for (const std::string& name : names.ips) AddName(all.get(), GEN_IPADD, name);
  if (sk_GENERAL_NAME_num(all.get()) == 0) return;
  Require(X509_add1_ext_i2d(certificate, NID_subject_alt_name, all.get(), 0, 0) == 1, "no names");
}

void AddPadding(X509* certificate, size_t bytes) {
  if (bytes == 0) return;
  const Owned<ASN1_OBJECT> type(OBJ_txt2obj("1.3.6.1.4.1.99999.1", 1));
  const Owned<ASN1_OCTET_STRING> padding(ASN1_OCTET_STRING_new());
  const std::string text(bytes, 'x');
  Require(ASN1_STRING_set(padding.get(), text.data(), static_cast<int>(bytes)) == 1, "no memory");
  const Owned<X509_EXTENSION> extension(X509_EXTENSION_create_by_OBJ(nullptr, type.get(), 0, padding.get()));
  Require(X509_add_ext(certificate, extension.get(), -1) == 1, "no padding");
}

// With all but its subject, its extensions and its signature.
Owned<X509> NewCertificate(EVP_PKEY* key, absl::Duration not_before, absl::Duration not_after) {
  Owned<X509> certificate(X509_new());
  Require(certificate != nullptr && X509_set_version(certificate.get(), X509_VERSION_3) == 1,
          "no certificate");
  uint64_t serial = 0;
  Require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1, "no dice");
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial >> 1);
  const absl::Time now = absl::Now();
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(now + not_before));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(now + not_after));
  Require(X509_set_pubkey(certificate.get(), key) == 1, "no public key");
  return certificate;
}

std::string Contents(BIO* bio) {
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(bio, &bytes);
  return std::string(bytes, static_cast<size_t>(count));
}

std::string PemOf(X509* certificate) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  Require(PEM_write_bio_X509(bio.get(), certificate) == 1, "cannot write a certificate");
  return Contents(bio.get());
}

std::string PemOf(EVP_PKEY* key, const std::string& passphrase) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  Require(PEM_write_bio_PKCS8PrivateKey(bio.get(), key, passphrase.empty() ? nullptr : EVP_aes_128_cbc(),
                                        passphrase.data(), static_cast<int>(passphrase.size()), nullptr,
                                        nullptr) == 1,
          "cannot write a key");
  return Contents(bio.get());
}

// The folder of a root. Its last owner removes it.
class Folder {
 public:
  Folder() {
    const char* const parent = getenv("TEST_TMPDIR");
    path_ = absl::StrCat(parent == nullptr ? "/tmp" : parent, "/certificates.XXXXXX");
    Require(mkdtemp(path_.data()) != nullptr, absl::StrCat("no folder ", path_));
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string NewPath(absl::string_view name) { return absl::StrCat(path_, "/", files_++, "-", name); }

 private:
  std::string path_;
  int files_ = 0;
};

}  // namespace

struct CertificateAuthority::State {
  std::shared_ptr<Folder> folder;
  Owned<EVP_PKEY> key;
  Owned<X509> certificate;
  std::string pem;
  std::string chain;  // The certificates of this authority and of those above it, except for the root's.
  std::string authorities_path;
};

CertificateNames LoopbackNames() { return {.dns = {"localhost"}, .ips = {"127.0.0.1", "::1"}}; }

CertificateAuthority::CertificateAuthority(std::shared_ptr<State> state) : state_(std::move(state)) {}

namespace {

Owned<X509> CertificateOfAuthority(const std::string& name, const AuthorityOptions& options, EVP_PKEY* key,
                                   X509* issuer, EVP_PKEY* issuer_key) {
  Owned<X509> certificate = NewCertificate(key, options.not_before, options.not_after);
  SetSubject(certificate.get(), name);
  if (issuer == nullptr) issuer = certificate.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer));
  AddExtension(certificate.get(), issuer, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate.get(), issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
  AddExtension(certificate.get(), issuer, NID_subject_key_identifier, "hash");
  AddExtension(certificate.get(), issuer, NID_authority_key_identifier, "keyid");
  AddPadding(certificate.get(), options.padding_bytes);
  Sign(certificate.get(), issuer_key);
  return certificate;
}

}  // namespace

CertificateAuthority::CertificateAuthority(const std::string& name, const AuthorityOptions& options)
    : state_(std::make_shared<State>()) {
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);  // As tls::Context does, which comes later.
  state_->folder = std::make_shared<Folder>();
  state_->key = NewKey(options.key_type);
  state_->certificate = CertificateOfAuthority(name, options, state_->key.get(), nullptr, state_->key.get());
  state_->pem = PemOf(state_->certificate.get());
  state_->authorities_path = state_->folder->NewPath("authorities.pem");
  ReplaceFile(state_->authorities_path, state_->pem);
}

CertificateAuthority CertificateAuthority::Intermediate(const std::string& name,
                                                        const AuthorityOptions& options) const {
  auto below = std::make_shared<State>();
  below->folder = state_->folder;
  below->key = NewKey(options.key_type);
  below->certificate =
      CertificateOfAuthority(name, options, below->key.get(), state_->certificate.get(), state_->key.get());
  below->pem = PemOf(below->certificate.get());
  below->chain = below->pem + state_->chain;
  below->authorities_path = state_->authorities_path;
  return CertificateAuthority(std::move(below));
}

TlsCredentials CertificateAuthority::Issue() const { return Issue(LoopbackNames()); }

TlsCredentials CertificateAuthority::Issue(const CertificateNames& names,
                                           const CertificateOptions& options) const {
  const Owned<EVP_PKEY> key = NewKey(options.key_type);
  const Owned<X509> certificate = NewCertificate(key.get(), options.not_before, options.not_after);
  SetSubject(certificate.get(), names.common_name);
  X509* const issuer = options.is_self_signed ? certificate.get() : state_->certificate.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer));
  AddExtension(certificate.get(), issuer, NID_basic_constraints, "critical,CA:FALSE");
  AddExtension(certificate.get(), issuer, NID_key_usage, options.key_usage.c_str());
  AddExtension(certificate.get(), issuer, NID_subject_key_identifier, "hash");
  AddExtension(certificate.get(), issuer, NID_authority_key_identifier, "keyid");
  if (!options.extended_key_usage.empty()) {
    AddExtension(certificate.get(), issuer, NID_ext_key_usage, options.extended_key_usage.c_str());
  }
  AddNames(certificate.get(), names);
  AddPadding(certificate.get(), options.padding_bytes);
  Sign(certificate.get(), options.is_self_signed ? key.get() : state_->key.get());

  TlsCredentials credentials;
  credentials.certificate =
      options.certificate_path.empty() ? NewPath("certificate.pem") : options.certificate_path;
  credentials.key = options.key_path.empty() ? NewPath("key.pem") : options.key_path;
  credentials.authorities = options.authorities.empty() ? state_->authorities_path : options.authorities;
  credentials.server_name = options.server_name;

  std::string chain = PemOf(certificate.get());
  if (options.has_intermediates && !options.is_self_signed) chain += state_->chain;
  const std::string key_pem = options.has_other_key
                                  ? PemOf(NewKey(options.key_type).get(), options.passphrase)
                                  : PemOf(key.get(), options.passphrase);
  const auto write = options.replaces_files ? ReplaceFile : OverwriteFile;
  write(credentials.certificate, chain);
  write(credentials.key, key_pem);
  return credentials;
}

const std::string& CertificateAuthority::authorities_path() const { return state_->authorities_path; }
std::string CertificateAuthority::NewPath(absl::string_view name) const {
  return state_->folder->NewPath(name);
}
const std::string& CertificateAuthority::pem() const { return state_->pem; }

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Require(file.good(), absl::StrCat("cannot read ", path));
  std::stringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

void OverwriteFile(const std::string& path, absl::string_view contents) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << contents;
  file.close();
  Require(file.good(), absl::StrCat("cannot write ", path));
}

void MakeOld(const std::string& path) {
  struct stat info;
  Require(stat(path.c_str(), &info) == 0, absl::StrCat("cannot look at ", path));
  const time_t an_hour_ago = time(nullptr) - 3600;
  if (info.st_mtim.tv_sec <= an_hour_ago) return;  // Another change would be one.
  const timespec times[] = {{.tv_sec = an_hour_ago, .tv_nsec = 0}, {.tv_sec = an_hour_ago, .tv_nsec = 0}};
  Require(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0, absl::StrCat("cannot change the time of ", path));
}

void ReplaceFile(const std::string& path, absl::string_view contents) {
  const std::string beside = absl::StrCat(path, ".new");
  OverwriteFile(beside, contents);
  Require(rename(beside.c_str(), path.c_str()) == 0, absl::StrCat("cannot rename to ", path));
}

}  // namespace hawser
