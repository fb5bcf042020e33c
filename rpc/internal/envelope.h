#ifndef HAWSER_RPC_INTERNAL_ENVELOPE_H_
#define HAWSER_RPC_INTERNAL_ENVELOPE_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

// What a request and a response say beside their body: the part of a message that transport/ carries and does
// not look at. Little-endian. A bit that this version does not know is refused, not ignored: peers agree on
// new ones in the handshake. Field table: rpc/PROTOCOL.md.
namespace hawser::internal {

//   offset  bytes
//        0      8  interface id
//        8      2  ordinal of the method
//       10      2  flags: 0
//       12      4  reserved: 0
struct RequestEnvelope {
  uint64_t interface_id = 0;
  uint16_t ordinal = 0;
};
inline constexpr size_t kRequestEnvelopeBytes = 16;

std::array<uint8_t, kRequestEnvelopeBytes> Encode(const RequestEnvelope& envelope);
// InvalidArgument: not of this version.
absl::StatusOr<RequestEnvelope> DecodeRequestEnvelope(absl::Span<const uint8_t> bytes);

//   offset  bytes
//        0      1  status code; 0 is OK, and the body is the results. Otherwise the body is a Status
//                  (rpc/status.capnp).
//        1      1  flags. Bit 0: the method was not run, and the call may be sent again, here or elsewhere
//        2      6  reserved: 0
struct ResponseEnvelope {
  absl::StatusCode code = absl::StatusCode::kOk;
  bool not_run = false;
};
inline constexpr size_t kResponseEnvelopeBytes = 8;

std::array<uint8_t, kResponseEnvelopeBytes> Encode(const ResponseEnvelope& envelope);
// DataLoss: not of this version. A code that absl does not know is Unknown.
absl::StatusOr<ResponseEnvelope> DecodeResponseEnvelope(absl::Span<const uint8_t> bytes);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_INTERNAL_ENVELOPE_H_
