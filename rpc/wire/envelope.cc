#include "hawser/rpc/wire/envelope.h"

#include "absl/strings/str_cat.h"
#include "hawser/base/endian.h"

namespace hawser::internal {
namespace {

constexpr uint8_t kNotRunFlag = 0x01;
constexpr uint8_t kRefusedFlag = 0x02;
constexpr uint8_t kFlags = kNotRunFlag | kRefusedFlag;

}  // namespace

absl::StatusOr<RequestEnvelope> DecodeRequestEnvelope(absl::Span<const uint8_t> bytes) {
  if (bytes.size() != kRequestEnvelopeBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the request's envelope has ", bytes.size(),
                                                   " bytes, it must have ", kRequestEnvelopeBytes));
  }
  if (LoadLittle32(bytes.data() + 12) != 0) {
    return absl::InvalidArgumentError("the request's envelope sets bits that this version does not know");
  }
  return RequestEnvelope{LoadLittle64(bytes.data()), LoadLittle16(bytes.data() + 8),
                         LoadLittle16(bytes.data() + 10)};
}

std::array<uint8_t, kResponseEnvelopeBytes> Encode(const ResponseEnvelope& envelope) {
  std::array<uint8_t, kResponseEnvelopeBytes> bytes = {};
  bytes[0] = static_cast<uint8_t>(envelope.code);
  bytes[1] = envelope.not_run ? kNotRunFlag : envelope.refused ? kRefusedFlag : 0;
  StoreLittle16(bytes.data() + 2, envelope.metadata_segment);
  return bytes;
}

absl::StatusOr<ResponseEnvelope> DecodeResponseEnvelope(absl::Span<const uint8_t> bytes) {
  if (bytes.size() != kResponseEnvelopeBytes) {
    return absl::DataLossError(absl::StrCat("the response's envelope has ", bytes.size(),
                                            " bytes, it must have ", kResponseEnvelopeBytes));
  }
  const uint8_t flags = bytes[1];
  const uint16_t metadata_segment = LoadLittle16(bytes.data() + 2);
  if ((flags & ~kFlags) != 0 || flags == kFlags || LoadLittle32(bytes.data() + 4) != 0) {
    return absl::DataLossError("the response's envelope sets bits that this version does not know");
  }
  if (flags != 0 && metadata_segment != 0) {
    return absl::DataLossError("the response has metadata of a method that, it says, was not run");
  }
  const bool known = bytes[0] <= static_cast<uint8_t>(absl::StatusCode::kUnauthenticated);
  return ResponseEnvelope{known ? static_cast<absl::StatusCode>(bytes[0]) : absl::StatusCode::kUnknown,
                          flags == kNotRunFlag, metadata_segment, flags == kRefusedFlag};
}

}  // namespace hawser::internal
