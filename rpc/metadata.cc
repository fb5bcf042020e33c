#include "hawser/rpc/metadata.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/endian.h"
#include "hawser/base/peer_text.h"
#include "hawser/rpc/status.h"

namespace hawser {
namespace {

// Before the key of a pair: its length, a byte that is 0, and the length of the value.
constexpr size_t kPrefixBytes = 4;

// What fills up the last word.
constexpr size_t kPaddingMax = 7;

// The lengths of the pair that `rest` begins with, each read once: over iWARP a peer may change them any time
// (rpc/PROTOCOL.md, Drawbacks). Whole: all of it is there.
struct Lengths {
  explicit Lengths(absl::string_view rest) {
    if (rest.size() < kPrefixBytes) return;
    const auto* const prefix = reinterpret_cast<const uint8_t*>(rest.data());
    key = prefix[0];
    reserved = prefix[1];
    value = LoadLittle16(prefix + 2);
    whole = rest.size() - kPrefixBytes >= key + value;
  }
  size_t all() const { return kPrefixBytes + key + value; }

  size_t key = 0;
  uint8_t reserved = 0;
  size_t value = 0;
  bool whole = false;
};

bool IsOfKey(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

bool IsKey(absl::string_view text) {
  return !text.empty() && text.size() <= kMetadataKeyMax && std::all_of(text.begin(), text.end(), IsOfKey);
}

absl::Status Malformed(absl::string_view how) {
  return absl::InvalidArgumentError(absl::StrCat("the metadata is malformed: ", how));
}

}  // namespace

// ---- MetadataView

MetadataView::Iterator::Iterator(absl::string_view rest) {
  const Lengths lengths(rest);
  if (!lengths.whole) return;
  rest_ = rest;
  pair_bytes_ = lengths.all();
  pair_ = {rest.substr(kPrefixBytes, lengths.key), rest.substr(kPrefixBytes + lengths.key, lengths.value)};
}

absl::StatusOr<MetadataView> MetadataView::Parse(absl::string_view bytes) {
  size_t at = 0;
  for (size_t pairs = 0; at < bytes.size() && bytes[at] != 0; ++pairs) {
    const Lengths lengths(bytes.substr(at));
    if (!lengths.whole) return Malformed("it is cut short");
    if (lengths.reserved != 0) return Malformed("a reserved byte is set");
    if (pairs == kMetadataPairsMax) {
      return Malformed(absl::StrCat("it has more than ", kMetadataPairsMax, " pairs"));
    }
    if (!IsKey(bytes.substr(at + kPrefixBytes, lengths.key))) {
      return Malformed("a key is too long, or has a character that keys do not have");
    }
    at += lengths.all();
    if (at > kMetadataBytesMax)
      return Malformed(absl::StrCat("it has more than ", kMetadataBytesMax, " bytes"));
  }
  const absl::string_view padding = bytes.substr(at);
  if (padding.size() > kPaddingMax || padding.find_first_not_of('\0') != absl::string_view::npos) {
    return Malformed("something follows its last pair");
  }
  return MetadataView(bytes.substr(0, at));
}

std::optional<absl::string_view> MetadataView::Get(absl::string_view key) const {
  for (const Pair& pair : *this) {
    if (pair.key == key) return pair.value;
  }
  return std::nullopt;
}

// ---- Metadata

Metadata::Metadata(std::initializer_list<MetadataView::Pair> pairs) {
  for (const MetadataView::Pair& pair : pairs) Add(pair.key, pair.value);
}

Metadata& Metadata::Add(absl::string_view key, absl::string_view value) {
  absl::Status refused;
  if (!IsKey(key)) {
    refused = absl::InvalidArgumentError(absl::StrCat(
        "\"", EscapePeerText(key.substr(0, kMetadataKeyMax)), "\" is no key of metadata: it needs 1 to ",
        kMetadataKeyMax, " of a to z, 0 to 9, '-', '_' and '.'"));
  } else if (std::distance(begin(), end()) == kMetadataPairsMax) {
    refused = absl::InvalidArgumentError(absl::StrCat("metadata has at most ", kMetadataPairsMax, " pairs"));
  } else if (value.size() > kMetadataBytesMax ||
             bytes_.size() + kPrefixBytes + key.size() + value.size() > kMetadataBytesMax) {
    refused = absl::InvalidArgumentError(
        absl::StrCat("metadata has at most ", kMetadataBytesMax, " bytes, and the value of \"", key, "\" of ",
                     value.size(), " is too much; send it as an argument of the method"));
  }
  if (!refused.ok()) {
    if (status_.ok()) status_ = std::move(refused);
    return *this;
  }
  uint8_t prefix[kPrefixBytes] = {static_cast<uint8_t>(key.size())};
  StoreLittle16(prefix + 2, static_cast<uint16_t>(value.size()));
  // Made first: key and value may be of this object.
  bytes_ +=
      absl::StrCat(absl::string_view(reinterpret_cast<const char*>(prefix), sizeof(prefix)), key, value);
  return *this;
}

std::optional<std::string> Metadata::Get(absl::string_view key) const&& {
  const std::optional<absl::string_view> value = MetadataView(bytes_).Get(key);
  if (!value.has_value()) return std::nullopt;
  return std::string(*value);
}

Metadata MetadataOf(const absl::Status& status) {
  const absl::optional<absl::Cord> detail = status.GetPayload(internal::kMetadataUrl);
  if (!detail.has_value()) return {};
  const std::string bytes(*detail);
  const absl::StatusOr<MetadataView> view = MetadataView::Parse(bytes);
  return view.ok() ? Metadata(*view) : Metadata();
}

}  // namespace hawser
