#include "hawser/rpc/wire/envelope.h"

#include "absl/strings/str_cat.h"
#include "hawser/base/endian.h"

namespace hawser::internal {
namespace {

constexpr uint8_t kNotRunFlag = 0x01;

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
  bytes[1] = envelope.not_run ? kNotRunFlag : 0;
  StoreLittle16(bytes.data() + 2, envelope.metadata_segment);
  return bytes;
}

absl::StatusOr<ResponseEnvelope> DecodeResponseEnvelope(absl::Span<const uint8_t> bytes) {
  if (bytes.size() != kResponseEnvelopeBytes) {
    return absl::DataLossError(absl::StrCat("the response's envelope has ", bytes.size(),
                                            " bytes, it must have ", kResponseEnvelopeBytes));
  }
  const bool not_run = (bytes[1] & kNotRunFlag) != 0;
  const uint16_t metadata_segment = LoadLittle16(bytes.data() + 2);
  if ((bytes[1] & ~kNotRunFlag) != 0 || LoadLittle32(bytes.data() + 4) != 0) {
    return absl::DataLossError("the response's envelope sets bits that this version does not know");
  }
  if (not_run && metadata_segment != 0) {
    return absl::DataLossError("the response has metadata of a method that, it says, was not run");
  }
  const bool known = bytes[0] <= static_cast<uint8_t>(absl::StatusCode::kUnauthenticated);
  return ResponseEnvelope{known ? static_cast<absl::StatusCode>(bytes[0]) : absl::StatusCode::kUnknown,
                          not_run, metadata_segment};
}

}  // namespace hawser::internal
