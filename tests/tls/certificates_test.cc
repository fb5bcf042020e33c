// What the other tests build on: OpenSSL's own check of a chain believes these certificates, or does not.
#include "hawser/tests/tls/certificates.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace hawser {
namespace {

// X509_V_OK, or why the files of the credentials would not be believed.
int Verify(const TlsCredentials& credentials) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), credentials.certificate.c_str()), 1);
  EXPECT_EQ(SSL_CTX_load_verify_file(context.get(), credentials.authorities.c_str()), 1);
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(context.get(), &chain);
  const std::unique_ptr<X509_STORE_CTX, void (*)(X509_STORE_CTX*)> check(X509_STORE_CTX_new(),
                                                                         X509_STORE_CTX_free);
  X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context.get()),
                      SSL_CTX_get0_certificate(context.get()), chain);
  X509_verify_cert(check.get());
  return X509_STORE_CTX_get_error(check.get());
}

bool KeyFits(const TlsCredentials& credentials) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  return SSL_CTX_use_certificate_chain_file(context.get(), credentials.certificate.c_str()) == 1 &&
         SSL_CTX_use_PrivateKey_file(context.get(), credentials.key.c_str(), SSL_FILETYPE_PEM) == 1;
}

TEST(CertificatesTest, EveryKindOfKeyIsBelieved) {
  for (const KeyType type : {KeyType::kP256, KeyType::kRsa2048, KeyType::kEd25519}) {
    const CertificateAuthority authority("authority", {.key_type = type});
    const TlsCredentials credentials = authority.Issue(LoopbackNames(), {.key_type = type});
    EXPECT_EQ(Verify(credentials), X509_V_OK);
    EXPECT_TRUE(KeyFits(credentials));
  }
}

TEST(CertificatesTest, IntermediateAuthoritiesAreInTheFile) {
  const CertificateAuthority root;
  const CertificateAuthority below = root.Intermediate("below").Intermediate("further below");
  EXPECT_EQ(Verify(below.Issue()), X509_V_OK);
  EXPECT_EQ(Verify(below.Issue(LoopbackNames(), {.has_intermediates = false})),
            X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
}

TEST(CertificatesTest, OptionsSpoilACertificate) {
  const CertificateAuthority authority;
  EXPECT_EQ(Verify(authority.Issue({}, {.not_after = -absl::Minutes(1)})), X509_V_ERR_CERT_HAS_EXPIRED);
  EXPECT_EQ(Verify(authority.Issue({}, {.not_before = absl::Hours(1)})), X509_V_ERR_CERT_NOT_YET_VALID);
  EXPECT_EQ(Verify(authority.Issue({.common_name = "self"}, {.is_self_signed = true})),
            X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT);
  EXPECT_NE(Verify(CertificateAuthority().Issue({}, {.authorities = authority.authorities_path()})),
            X509_V_OK);
  EXPECT_FALSE(KeyFits(authority.Issue({}, {.has_other_key = true})));
}

TEST(CertificatesTest, FilesAreRenewedWhereTheyAre) {
  const CertificateAuthority authority;
  const TlsCredentials old = authority.Issue();
  for (const bool replaces : {false, true}) {
    const std::string before = ReadFile(old.certificate);
    const TlsCredentials renewed = authority.Issue(
        LoopbackNames(),
        {.certificate_path = old.certificate, .key_path = old.key, .replaces_files = replaces});
    EXPECT_EQ(renewed.certificate, old.certificate);
    EXPECT_NE(ReadFile(old.certificate), before);
    EXPECT_EQ(Verify(old), X509_V_OK);
    EXPECT_TRUE(KeyFits(old));
  }
}

TEST(CertificatesTest, PaddingMakesALargeCertificate) {
  const CertificateAuthority authority;
  const TlsCredentials credentials = authority.Issue({}, {.padding_bytes = 1 << 20});
  EXPECT_GT(ReadFile(credentials.certificate).size(), size_t{1} << 20);
  EXPECT_EQ(Verify(credentials), X509_V_OK);
}

}  // namespace
}  // namespace hawser
