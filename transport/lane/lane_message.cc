#include "hawser/transport/lane/lane_message.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hawser/base/endian.h"
#include "hawser/base/peer_text.h"

namespace hawser::transport {
namespace {

using Kind = LaneMessage::Kind;

// Of every message: kind, access or code, length of the text, a byte that is 0, handle.
constexpr size_t kHeaderBytes = 8;
constexpr size_t kOpenBytes = kHeaderBytes + 4 * 8 + 16;
constexpr size_t kOpenedBytes = kHeaderBytes + 2 * 8 + 8;
constexpr size_t kArrivedBytes = kHeaderBytes + 8;
constexpr size_t kTextMax = kLaneMessageMax - kHeaderBytes;

size_t BytesOf(Kind kind) {
  switch (kind) {
    case Kind::kOpen:
      return kOpenBytes;
    case Kind::kOpened:
      return kOpenedBytes;
    case Kind::kArrived:
      return kArrivedBytes;
    case Kind::kRefused:
    case Kind::kClose:
    case Kind::kClosed:
    case Kind::kRevoke:
    case Kind::kPing:
    case Kind::kCounted:
      return kHeaderBytes;
  }
  return 0;
}

}  // namespace

std::string DescribeAccess(uint8_t access) {
  std::string text;
  const auto add = [&](uint8_t bit, absl::string_view name) {
    if ((access & bit) != 0) absl::StrAppend(&text, text.empty() ? "" : ", ", name);
  };
  add(kLaneRead, "READ");
  add(kLaneWrite, "WRITE");
  add(kLaneAtomic, "atomics");
  return text;
}

std::string Encode(const LaneMessage& message) {
  std::string out(BytesOf(message.kind), '\0');
  auto* const bytes = reinterpret_cast<uint8_t*>(out.data());
  bytes[0] = static_cast<uint8_t>(message.kind);
  StoreLittle32(bytes + 4, message.handle);
  uint8_t* const body = bytes + kHeaderBytes;
  switch (message.kind) {
    case Kind::kOpen:
      bytes[1] = message.ticket.access;
      StoreLittle64(body, message.ticket.owner);
      StoreLittle64(body + 8, message.ticket.region);
      StoreLittle64(body + 16, message.ticket.offset);
      StoreLittle64(body + 24, message.ticket.length);
      std::copy(message.ticket.key.begin(), message.ticket.key.end(), body + 32);
      break;
    case Kind::kOpened:
      bytes[1] = message.access;
      StoreLittle64(body, message.address);
      StoreLittle64(body + 8, message.length);
      StoreLittle32(body + 16, message.rkey);
      break;
    case Kind::kRefused: {
      const absl::string_view text = absl::string_view(message.why.message()).substr(0, kTextMax);
      bytes[1] = static_cast<uint8_t>(message.why.code());
      bytes[2] = static_cast<uint8_t>(text.size());
      absl::StrAppend(&out, text);
      break;
    }
    case Kind::kArrived:
      StoreLittle32(body, message.count);
      break;
    default:
      break;
  }
  return out;
}

absl::StatusOr<LaneMessage> DecodeLaneMessage(absl::Span<const uint8_t> data) {
  const auto malformed = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", data.size(), " bytes on a lane is malformed: ", what));
  };
  if (data.size() < kHeaderBytes) return malformed("it has no header");
  LaneMessage message;
  message.kind = static_cast<Kind>(data[0]);
  if (data[0] < static_cast<uint8_t>(Kind::kOpen) || data[0] > static_cast<uint8_t>(Kind::kCounted)) {
    return malformed(absl::StrCat("its kind is ", data[0]));
  }
  const size_t text_bytes = message.kind == Kind::kRefused ? data[2] : 0;
  if (data.size() != BytesOf(message.kind) + text_bytes) {
    return malformed(absl::StrCat("kind ", data[0], " has ", BytesOf(message.kind) + text_bytes));
  }
  message.handle = LoadLittle32(data.data() + 4);
  const uint8_t* const body = data.data() + kHeaderBytes;
  switch (message.kind) {
    case Kind::kOpen:
      message.ticket.access = data[1];
      message.ticket.owner = LoadLittle64(body);
      message.ticket.region = LoadLittle64(body + 8);
      message.ticket.offset = LoadLittle64(body + 16);
      message.ticket.length = LoadLittle64(body + 24);
      std::copy(body + 32, body + 48, message.ticket.key.begin());
      break;
    case Kind::kOpened:
      message.access = data[1];
      message.address = LoadLittle64(body);
      message.length = LoadLittle64(body + 8);
      message.rkey = LoadLittle32(body + 16);
      if (!IsLaneAccess(message.access) || message.length == 0 || message.rkey == 0 ||
          message.address + message.length < message.address) {
        return malformed("it gives access to nothing");
      }
      break;
    case Kind::kRefused: {
      const bool known = data[1] >= 1 && data[1] <= static_cast<int>(absl::StatusCode::kUnauthenticated);
      const absl::string_view text(reinterpret_cast<const char*>(body), text_bytes);
      message.why = absl::Status(known ? static_cast<absl::StatusCode>(data[1]) : absl::StatusCode::kUnknown,
                                 EscapePeerText(text));
      break;
    }
    case Kind::kArrived:
      message.count = LoadLittle32(body);
      if (message.count == 0 || message.count > kLaneArrivedMax) {
        return malformed(
            absl::StrCat("it counts ", message.count, " WRITEs, and not 1 to ", kLaneArrivedMax));
      }
      break;
    default:
      break;
  }
  return message;
}

}  // namespace hawser::transport
