#include "hawser/tls/certificate.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>

#include "absl/strings/str_cat.h"
#include "hawser/base/peer_text.h"

namespace hawser::tls {
namespace {

constexpr size_t kTextBytesMax = 256;

constexpr absl::string_view kByOurClock = ", by our clock it is ";

absl::string_view TextOf(const ASN1_STRING* string) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
          static_cast<size_t>(ASN1_STRING_length(string))};
}

bool IsPrintable(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string IpText(absl::string_view bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  if (bytes.size() == 4) inet_ntop(AF_INET, bytes.data(), text, sizeof(text));
  if (bytes.size() == 16) inet_ntop(AF_INET6, bytes.data(), text, sizeof(text));
  return text;
}

std::string Shortened(absl::string_view text) {
  std::string escaped = EscapePeerText(text.substr(0, kTextBytesMax));
  if (text.size() <= kTextBytesMax && escaped.size() <= kTextBytesMax) return escaped;
  escaped.resize(std::min(escaped.size(), kTextBytesMax - 3));
  return escaped + "...";
}

// RFC 2253, with what is not ASCII escaped.
std::string NameText(const X509_NAME* name) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> out(BIO_new(BIO_s_mem()), BIO_free_all);
  if (out == nullptr || X509_NAME_print_ex(out.get(), name, 0, XN_FLAG_RFC2253) < 0) return "?";
  const char* text = nullptr;
  const long bytes = BIO_get_mem_data(out.get(), &text);
  return bytes <= 0 ? "(empty)" : Shortened({text, static_cast<size_t>(bytes)});
}

absl::Time TimeOf(const ASN1_TIME* time) {
  tm parts = {};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string InUtc(absl::Time time) { return absl::FormatTime(time, absl::UTCTimeZone()); }

}  // namespace

PeerIdentity IdentityOf(const x509_st& certificate) {
  PeerIdentity identity;
  identity.is_authenticated = true;
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  if (names == nullptr) return identity;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS || name->type == GEN_URI) {
      const absl::string_view text = TextOf(name->d.ia5);
      if (IsPrintable(text)) (name->type == GEN_DNS ? identity.dns_names : identity.uris).emplace_back(text);
    } else if (name->type == GEN_IPADD) {
      std::string text = IpText(TextOf(name->d.iPAddress));
      if (!text.empty()) identity.ip_addresses.push_back(std::move(text));
    }
  }
  return identity;
}

std::string TooManyNames(const PeerIdentity& identity) {
  size_t count = 0, bytes = 0;
  for (const auto* names : {&identity.dns_names, &identity.uris, &identity.ip_addresses}) {
    count += names->size();
    for (const std::string& name : *names) bytes += name.size();
  }
  if (count <= kNamesMax && bytes <= kNameBytesMax) return "";
  return absl::StrCat("it has ", count, " names of ", bytes, " bytes in all, and ", kNamesMax, " names of ",
                      kNameBytesMax, " bytes are accepted");
}

std::string DescribeCertificate(const x509_st& certificate) {
  const PeerIdentity identity = IdentityOf(certificate);
  const std::string subject = NameText(X509_get_subject_name(&certificate));
  const std::string issuer = NameText(X509_get_issuer_name(&certificate));
  return absl::StrCat("certificate",
                      identity.has_names() ? absl::StrCat(" of ", Shortened(identity.ToString()), ",") : "",
                      " subject ", subject, ", issued by ", issuer);
}

absl::Time EndOf(const x509_st& certificate) { return TimeOf(X509_get0_notAfter(&certificate)); }

absl::Time BeginOf(const x509_st& certificate) { return TimeOf(X509_get0_notBefore(&certificate)); }

absl::Time EndOf(const stack_st_X509& chain) {
  absl::Time first = absl::InfiniteFuture();
  for (int i = 0; i < sk_X509_num(&chain); ++i) first = std::min(first, EndOf(*sk_X509_value(&chain, i)));
  return first;
}

std::string DescribeExpired(const x509_st& certificate, absl::Time now) {
  return absl::StrCat("it has expired at ", InUtc(EndOf(certificate)), kByOurClock, InUtc(now));
}

std::string DescribeNotYetValid(const x509_st& certificate, absl::Time now) {
  return absl::StrCat("it is not valid before ", InUtc(BeginOf(certificate)), kByOurClock, InUtc(now));
}

absl::string_view WithoutOurClock(absl::string_view error) {
  return error.substr(0, error.find(kByOurClock));
}

}  // namespace hawser::tls
