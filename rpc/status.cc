#include "hawser/rpc/status.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "hawser/base/peer_text.h"
#include "hawser/rpc/status.capnp.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/transport/uri.h"

namespace hawser {
namespace {

// What is known of a call in this process alone. One detail, because a status prints several in any order.
constexpr absl::string_view kCallUrl = "type.hawser/call";
constexpr absl::string_view kUnservedUrl = "type.hawser/unserved";  // Crosses the wire.

// By internal::Sent.
constexpr absl::string_view kSentWords[] = {"unsent", "sent", "perhaps sent"};
constexpr absl::string_view kEndings[] = {"; it was not sent", "; it was sent, so the server may have run it",
                                          "; it may have been sent, and the server may have run it"};
constexpr internal::Sent kAllSent[] = {internal::Sent::kNo, internal::Sent::kYes, internal::Sent::kPerhaps};
constexpr absl::string_view kBetween = ", ";
// What MethodFinder::Unimplemented() writes. A status with such a text is of a call that was not run.
constexpr absl::string_view kUnserved[] = {": the server implements no interface 0x", " has no method @",
                                           ": the server implements no such method"};

constexpr absl::string_view kCalling = "calling ";
constexpr absl::string_view kAt = " at ";
constexpr absl::string_view kConnecting = "connecting";

// In the detail: "unsent, calling kv.capnp:KeyValue.get".
struct KnownHere {
  std::optional<internal::Sent> sent;
  std::optional<std::string> doing;  // See KeepTextHere().

  bool operator==(const KnownHere&) const = default;
};

absl::string_view WordOf(internal::Sent sent) { return kSentWords[static_cast<size_t>(sent)]; }
absl::string_view Ending(internal::Sent sent) { return kEndings[static_cast<size_t>(sent)]; }

bool BeginsWithAddress(absl::string_view text) {
  return (absl::ConsumePrefix(&text, transport::kPreferredScheme) ||
          absl::ConsumePrefix(&text, transport::kFallbackScheme)) &&
         absl::StartsWith(text, "://");
}

// What the text of a status says by itself: "calling kv.capnp:KeyValue.get at tcp://10.0.0.7:7470: lost; it
// was not sent", or "connecting to tcp://10.0.0.7:7470: refused". A status with such a text has the detail
// only if that says something else: absl prints the details of a status, and the reader would read the same
// twice. The forms are narrow, because a text of the application's own may begin in a similar way.
KnownHere SaidIn(absl::string_view text) {
  KnownHere said;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, kConnecting)) {
    if (absl::ConsumePrefix(&rest, " to ") && BeginsWithAddress(rest)) said.doing = std::string(kConnecting);
    return said;
  }
  if (!absl::ConsumePrefix(&rest, kCalling)) return said;
  const size_t name_bytes = rest.find(kAt);
  if (name_bytes == absl::string_view::npos || !absl::StrContains(rest.substr(0, name_bytes), ".capnp:") ||
      !BeginsWithAddress(rest.substr(name_bytes + kAt.size()))) {
    return said;
  }
  said.doing = std::string(text.substr(0, kCalling.size() + name_bytes));
  for (const internal::Sent sent : kAllSent) {
    if (absl::EndsWith(rest, Ending(sent))) said.sent = sent;
  }
  for (const absl::string_view unserved : kUnserved) {
    if (!said.sent.has_value() && absl::StrContains(rest, unserved)) said.sent = internal::Sent::kNo;
  }
  return said;
}

KnownHere KnownOf(const absl::Status& status) {
  const absl::optional<absl::Cord> detail = status.GetPayload(kCallUrl);
  if (!detail.has_value()) return SaidIn(status.message());
  KnownHere known;
  const std::string text(*detail);
  absl::string_view rest = text;
  for (const internal::Sent sent : kAllSent) {
    if (!absl::ConsumePrefix(&rest, WordOf(sent))) continue;
    known.sent = sent;
    break;
  }
  if (known.sent.has_value() ? absl::ConsumePrefix(&rest, kBetween) : !rest.empty())
    known.doing = std::string(rest);
  return known;
}

void SetKnown(absl::Status& status, const KnownHere& known) {
  if (SaidIn(status.message()) == known) {
    status.ErasePayload(kCallUrl);
    return;
  }
  const absl::string_view sent = known.sent.has_value() ? WordOf(*known.sent) : "";
  const absl::string_view between = known.sent.has_value() && known.doing.has_value() ? kBetween : "";
  status.SetPayload(kCallUrl, absl::Cord(absl::StrCat(sent, between, known.doing.value_or(""))));
}

}  // namespace

bool WasSent(const absl::Status& status) {
  return KnownOf(status).sent.value_or(internal::Sent::kPerhaps) != internal::Sent::kNo;
}

namespace internal {
namespace {

// Does not end in the middle of a UTF-8 character.
size_t CutAt(absl::string_view text, size_t size_max) {
  if (text.size() <= size_max) return text.size();
  while (size_max > 0 && (static_cast<uint8_t>(text[size_max]) & 0xc0) == 0x80) --size_max;
  return size_max;
}

bool StaysHere(absl::string_view type_url) { return type_url == kCallUrl || type_url == kMetadataUrl; }

// What may be said of a call to those that must not learn of its server.
absl::string_view PublicReason(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return "its server could not be reached, or was lost";
    case absl::StatusCode::kDeadlineExceeded:
      return "the deadline passed";
    case absl::StatusCode::kCancelled:
      return "it was cancelled";
    case absl::StatusCode::kResourceExhausted:
      return "memory, or a limit, was exhausted";
    case absl::StatusCode::kUnimplemented:
      return "its server does not implement it";
    default:
      return "it failed";
  }
}

std::string PublicText(const absl::Status& status) {
  const KnownHere known = KnownOf(status);
  if (!known.doing.has_value()) return std::string(status.message());
  return absl::StrCat(*known.doing, ": ", PublicReason(status.code()),
                      known.sent.has_value() ? Ending(*known.sent) : "");
}

struct Detail {
  std::string type_url;
  std::string value;
};

std::vector<Detail> DetailsThatFit(const absl::Status& status) {
  std::vector<Detail> details;
  size_t left_bytes = kStatusDetailBytesMax;
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& value) {
    const size_t bytes = type_url.size() + value.size();
    if (StaysHere(type_url) || bytes > left_bytes || details.size() == kStatusDetailsMax) return;
    left_bytes -= bytes;
    details.push_back({std::string(type_url), std::string(value)});
  });
  return details;
}

void SetText(capnp::Text::Builder to, absl::string_view from) {
  std::memcpy(to.begin(), from.data(), from.size());
}

}  // namespace

absl::Status CallError(absl::StatusCode code, absl::string_view method, absl::string_view peer,
                       absl::string_view why, Sent sent) {
  absl::Status status(code, absl::StrCat(kCalling, method, kAt, peer, ": ", why, Ending(sent)));
  SetKnown(status, {.sent = sent, .doing = absl::StrCat(kCalling, method)});
  return status;
}

absl::Status PublicCallError(absl::StatusCode code, absl::string_view method, absl::string_view why,
                             Sent sent) {
  absl::Status status(code, absl::StrCat("calling ", method, ": ", why, Ending(sent)));
  SetWasSent(status, sent);
  return status;
}

void KeepTextHere(absl::Status& status, absl::string_view doing) {
  KnownHere known = KnownOf(status);
  known.doing = std::string(doing);
  SetKnown(status, known);
}

absl::Status UnservedError(absl::string_view text) {
  absl::Status status = absl::UnimplementedError(text);
  status.SetPayload(kUnservedUrl, absl::Cord());
  return status;
}

absl::Status NameUnserved(absl::Status status, absl::string_view method, absl::string_view peer) {
  if (!absl::IsUnimplemented(status) || !status.GetPayload(kUnservedUrl).has_value()) return status;
  absl::Status named = absl::UnimplementedError(
      absl::StrCat(kCalling, method, kAt, peer, ": ", absl::string_view(status.message())));
  SetKnown(named, {.doing = absl::StrCat(kCalling, method)});
  return named;
}

void SetWasSent(absl::Status& status, Sent sent) {
  KnownHere known = KnownOf(status);
  known.sent = sent;
  SetKnown(status, known);
}

absl::Status Shortened(const absl::Status& status, size_t text_max) {
  const std::string text = PublicText(status);
  return absl::Status(status.code(), absl::string_view(text).substr(0, CutAt(text, text_max)));
}

void EncodeStatus(const absl::Status& status, transport::OutgoingMessage& message, bool refused) {
  wire::Status::Builder body = message.builder().initRoot<wire::Status>();
  body.setRefused(refused);
  const std::string text = PublicText(status);
  const size_t kept = CutAt(text, kStatusMessageMax);
  const absl::string_view ending = kept < text.size() ? "..." : "";
  SetText(body.initMessage(kept + ending.size()),
          absl::StrCat(absl::string_view(text).substr(0, kept), ending));

  const std::vector<Detail> details = DetailsThatFit(status);
  if (details.empty()) return;
  auto list = body.initDetails(details.size());
  for (size_t i = 0; i < details.size(); ++i) {
    SetText(list[i].initTypeUrl(details[i].type_url.size()), details[i].type_url);
    list[i].setValue({reinterpret_cast<const uint8_t*>(details[i].value.data()), details[i].value.size()});
  }
}

absl::Status DecodeStatus(absl::StatusCode code, transport::IncomingMessage& message, bool* refused) {
  absl::Status status;
  if (refused != nullptr) *refused = false;
  const absl::Status read = CatchMalformed([&] {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = (kStatusMessageMax + kStatusDetailBytesMax) / sizeof(capnp::word) * 2;
    options.nestingLimit = 4;
    const auto body = message.reader(options).getRoot<wire::Status>();
    const capnp::Text::Reader text = body.getMessage();
    const absl::string_view all(text.begin(), text.size());
    // Cut again: to escape a text may make it longer.
    std::string message_text = EscapePeerText(all.substr(0, CutAt(all, kStatusMessageMax + 3)));
    message_text.resize(CutAt(message_text, kStatusMessageMax + 3));
    absl::Status read_so_far(code, message_text);
    size_t left = kStatusDetailsMax;
    for (const auto detail : body.getDetails()) {
      if (left-- == 0) break;
      const capnp::Text::Reader url = detail.getTypeUrl();
      const capnp::Data::Reader value = detail.getValue();
      const std::string type_url = EscapePeerText(absl::string_view(url.begin(), url.size()));
      if (StaysHere(type_url)) continue;
      read_so_far.SetPayload(type_url, absl::Cord(absl::string_view(
                                           reinterpret_cast<const char*>(value.begin()), value.size())));
    }
    // What it says about a call, it does not say about this one.
    SetKnown(read_so_far, {});
    if (refused != nullptr) *refused = body.getRefused();
    status = std::move(read_so_far);
  });
  if (read.ok()) return status;
  // Its limits are fixed, and no option.
  if (absl::IsResourceExhausted(read)) {
    return absl::Status(code, "the peer's explanation cannot be read: it is too large, or nested too deep");
  }
  // What Cap'n Proto says may quote bytes of the message.
  return absl::Status(
      code, absl::StrCat("the peer's explanation cannot be read: ", EscapePeerText(read.message())));
}

}  // namespace internal
}  // namespace hawser
