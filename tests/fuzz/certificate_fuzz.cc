// The certificate of a peer, in DER: what tls/certificate.h makes of it, for identities and for errors.
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>

#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tls/certificate.h"

namespace hawser::fuzz {
namespace {

using CertificatePtr = std::unique_ptr<X509, decltype(&X509_free)>;

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c != 0x7f; });
}

void CheckIdentity(const PeerIdentity& identity) {
  FUZZ_EXPECT(identity.is_authenticated);
  for (const auto* names : {&identity.dns_names, &identity.uris, &identity.ip_addresses}) {
    for (const std::string& name : *names) {
      FUZZ_EXPECT(!name.empty() && IsPrintable(name) && name.find(' ') == std::string::npos, name);
    }
  }
  for (const std::string& name : identity.dns_names) FUZZ_EXPECT(identity.HasDnsName(name), name);
  for (const std::string& uri : identity.uris) FUZZ_EXPECT(identity.HasUri(uri), uri);
  FUZZ_EXPECT(identity.ToString().size() <= 512);
  FUZZ_EXPECT(identity == PeerIdentity(identity));
}

// The DER of the first certificate in a PEM file.
std::string Der(const std::string& path) {
  const std::string pem = ReadFile(path);
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> in(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
  const CertificatePtr certificate(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr), X509_free);
  FUZZ_EXPECT(certificate != nullptr, path);
  std::string der(static_cast<size_t>(i2d_X509(certificate.get(), nullptr)), '\0');
  auto* out = reinterpret_cast<unsigned char*>(&der[0]);
  i2d_X509(certificate.get(), &out);
  return der;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  const CertificateAuthority authority;
  const auto of = [&](const CertificateNames& names) { return Der(authority.Issue(names).certificate); };
  return {
      {"loopback", of(LoopbackNames())},
      {"spiffe", of({.uris = {"spiffe://example.org/kv", "urn:x"}})},
      {"names", of({.dns = {"*.example.org", "kv1", std::string("a\0b", 3), "\xff\xfe"}, .ips = {"::1"}})},
      {"nameless", of({.common_name = "kv1"})}};
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hawser;
  const unsigned char* next = data;
  const fuzz::CertificatePtr certificate(d2i_X509(nullptr, &next, static_cast<long>(size)), X509_free);
  ERR_clear_error();
  if (certificate == nullptr) return 0;
  fuzz::CheckIdentity(tls::IdentityOf(*certificate));
  const std::string text = tls::DescribeCertificate(*certificate);
  FUZZ_EXPECT(text.size() <= 900 && fuzz::IsPrintable(text), text);
  tls::BeginOf(*certificate);
  tls::EndOf(*certificate);
  ERR_clear_error();
  return 0;
}
