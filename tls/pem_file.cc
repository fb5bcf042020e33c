#include "hawser/tls/pem_file.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hawser::tls {
namespace {

constexpr absl::string_view kBegin = "-----BEGIN ";
constexpr absl::string_view kEnd = "-----END ";

// What stands between the dashes of lines that begin so: "CERTIFICATE".
std::vector<absl::string_view> LabelsOf(absl::string_view text, absl::string_view line_start) {
  std::vector<absl::string_view> labels;
  for (size_t at = text.find(line_start); at != text.npos; at = text.find(line_start, at + 1)) {
    const absl::string_view rest = text.substr(at + line_start.size());
    const size_t dashes = rest.substr(0, 64).find("-----");
    if (dashes != rest.npos && (at == 0 || text[at - 1] == '\n')) labels.push_back(rest.substr(0, dashes));
  }
  return labels;
}

bool IsOf(absl::string_view label, PemKind kind) {
  return kind == PemKind::kPrivateKey
             ? absl::EndsWith(label, "PRIVATE KEY")
             : label == "CERTIFICATE" || label == "X509 CERTIFICATE" || label == "TRUSTED CERTIFICATE";
}

// A label of the file in words of ours.
absl::string_view InWords(absl::string_view label) {
  if (IsOf(label, PemKind::kCertificate)) return "a certificate";
  if (IsOf(label, PemKind::kPrivateKey)) return "a private key";
  if (absl::EndsWith(label, "CERTIFICATE REQUEST")) return "a request for a certificate";
  if (absl::EndsWith(label, "PUBLIC KEY")) return "a public key";
  if (label == "X509 CRL") return "a list of revoked certificates";
  return "something else";
}

}  // namespace

std::string WhyUnreadable(absl::string_view contents, PemKind wanted) {
  const bool is_key = wanted == PemKind::kPrivateKey;
  const absl::string_view name = is_key ? "private key" : "certificate";
  const auto blank = [](char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); };
  if (std::all_of(contents.begin(), contents.end(), blank)) return "it is empty";
  const std::vector<absl::string_view> labels = LabelsOf(contents, kBegin);
  if (labels.empty()) {
    if (contents[0] == '\x30') {
      return absl::StrCat("it is DER, and has to be PEM: openssl ", is_key ? "pkey" : "x509",
                          " -inform DER -in FILE -out FILE.pem makes PEM of it");
    }
    return absl::StrCat("it is no PEM file: it has no line \"-----BEGIN ",
                        is_key ? "PRIVATE KEY" : "CERTIFICATE", "-----\"");
  }
  const auto is_wanted = [&](absl::string_view label) { return IsOf(label, wanted); };
  const auto begun = std::count_if(labels.begin(), labels.end(), is_wanted);
  if (begun == 0) return absl::StrCat("it has ", InWords(labels[0]), ", and no ", name);
  const std::vector<absl::string_view> ends = LabelsOf(contents, kEnd);
  if (std::count_if(ends.begin(), ends.end(), is_wanted) < begun) {
    return absl::StrCat("it ends within a ", name, ": was it copied in part?");
  }
  return absl::StrCat("a ", name, " in it is damaged");
}

}  // namespace hawser::tls
