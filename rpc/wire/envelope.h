#ifndef HAWSER_RPC_WIRE_ENVELOPE_H_
#define HAWSER_RPC_WIRE_ENVELOPE_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hawser/base/endian.h"

// The envelope of a request or a response: the fields beside its body, which transport/ carries and does not
// read. Little-endian. Unknown bits are refused, not ignored: once there is a release, peers agree on new
// ones in the handshake. Field table: rpc/PROTOCOL.md.
namespace hawser::internal {

//   offset  bytes
//        0      8  interface id
//        8      2  ordinal of the method
//       10      2  metadata: the number of its segment; 0: there is none
//       12      4  reserved: 0
struct RequestEnvelope {
  uint64_t interface_id = 0;
  uint16_t ordinal = 0;
  uint16_t metadata_segment = 0;
};
inline constexpr size_t kRequestEnvelopeBytes = 16;

inline std::array<uint8_t, kRequestEnvelopeBytes> Encode(const RequestEnvelope& envelope) {
  std::array<uint8_t, kRequestEnvelopeBytes> bytes = {};
  StoreLittle64(bytes.data(), envelope.interface_id);
  StoreLittle16(bytes.data() + 8, envelope.ordinal);
  StoreLittle16(bytes.data() + 10, envelope.metadata_segment);
  return bytes;
}
// InvalidArgument: not of this version.
absl::StatusOr<RequestEnvelope> DecodeRequestEnvelope(absl::Span<const uint8_t> bytes);
// The same for one without metadata, and without a reason. False: `envelope` is untouched.
inline bool DecodeRequestEnvelope(absl::Span<const uint8_t> bytes, RequestEnvelope& envelope) {
  if (bytes.size() != kRequestEnvelopeBytes || LoadLittle64(bytes.data() + 8) > UINT16_MAX) return false;
  envelope = {LoadLittle64(bytes.data()), LoadLittle16(bytes.data() + 8), 0};
  return true;
}

//   offset  bytes
//        0      1  status code; 0 is OK, and the body is the results. Otherwise the body is a Status
//                  (rpc/status.capnp).
//        1      1  flags. Bit 0: the method was not run, since the side that answers goes away, and the call
//                  may be sent again, here or elsewhere
//        2      2  metadata: the number of its segment; 0: there is none, as always with bit 0
//        4      4  reserved: 0
struct ResponseEnvelope {
  absl::StatusCode code = absl::StatusCode::kOk;
  bool not_run = false;
  uint16_t metadata_segment = 0;
};
inline constexpr size_t kResponseEnvelopeBytes = 8;

// The envelope of a result without metadata.
inline constexpr std::array<uint8_t, kResponseEnvelopeBytes> kOkEnvelope = {};
inline bool IsOkEnvelope(absl::Span<const uint8_t> bytes) {
  return bytes.size() == kResponseEnvelopeBytes && LoadLittle64(bytes.data()) == 0;
}
std::array<uint8_t, kResponseEnvelopeBytes> Encode(const ResponseEnvelope& envelope);
// DataLoss: not of this version. A code that absl does not know is Unknown.
absl::StatusOr<ResponseEnvelope> DecodeResponseEnvelope(absl::Span<const uint8_t> bytes);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_ENVELOPE_H_
