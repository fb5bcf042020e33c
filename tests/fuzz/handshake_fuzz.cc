// What is said before the first exchange: DecodeHandshake() and DecodeRejection().
#include "absl/status/status.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/handshake.h"
#include "hawser/transport/options.h"

namespace hawser::fuzz {
namespace {

using transport::Handshake;

constexpr size_t kLength = 4;  // Offset of the field, which a later version may make larger.

void CheckHandshake(absl::string_view bytes) {
  const absl::StatusOr<Handshake> decoded = transport::DecodeHandshake(bytes);
  if (!decoded.ok()) {
    FUZZ_EXPECT(absl::IsInvalidArgument(decoded.status()) || absl::IsFailedPrecondition(decoded.status()),
                decoded.status().ToString());
    FUZZ_EXPECT(!decoded.status().message().empty());
    return;
  }
  FUZZ_EXPECT(decoded->slots >= 1 && decoded->slots <= transport::kSlotsMax, decoded->slots);
  FUZZ_EXPECT(decoded->receive_buffer_bytes >= transport::kReceiveBufferMin &&
                  decoded->receive_buffer_bytes <= transport::kReceiveBufferMax &&
                  decoded->receive_buffer_bytes % 64 == 0,
              decoded->receive_buffer_bytes);

  // Nothing that was accepted is lost, but for what a later version appends.
  std::string encoded = transport::Encode(*decoded);
  FUZZ_EXPECT(encoded.size() <= fabric::kConnectPrivateDataMax && encoded.size() <= bytes.size());
  FUZZ_EXPECT(static_cast<uint8_t>(encoded[kLength]) <= static_cast<uint8_t>(bytes[kLength]));
  encoded[kLength] = bytes[kLength];
  FUZZ_EXPECT(encoded == bytes.substr(0, encoded.size()), "a field was accepted and dropped");
}

void CheckRejection(absl::string_view bytes) {
  const absl::Status decoded = transport::DecodeRejection(bytes);
  FUZZ_EXPECT(!decoded.ok() && !decoded.message().empty());
  FUZZ_EXPECT(decoded.message().size() <= 6 * bytes.size() + 64);

  const absl::Status again = transport::DecodeRejection(transport::EncodeRejection(decoded));
  FUZZ_EXPECT(again.code() == decoded.code(), again.ToString());
  FUZZ_EXPECT(transport::EncodeRejection(decoded).size() <= fabric::kRejectPrivateDataMax);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  Handshake hello;
  hello.slots = 32;
  hello.receive_buffer_bytes = 4096;
  hello.message_bytes_max = 512 << 20;
  const std::string forward = transport::Encode(hello);
  hello.role = transport::Role::kReverse;
  hello.features = transport::kFeatureCredits | 2;
  hello.session.fill(0x5a);
  const std::string padded = transport::Encode(hello) + std::string(12, '\0');
  std::string later = forward;
  later[6] = 2;
  return {{"forward", forward},
          {"padded", padded},
          {"later", later},
          {"rejection", transport::EncodeRejection(absl::UnavailableError("the server is shutting down"))},
          {"long_rejection", transport::EncodeRejection(absl::InternalError(std::string(300, 'x')))}};
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const hawser::fuzz::ExactCopy bytes({reinterpret_cast<const char*>(data), size});
  hawser::fuzz::CheckHandshake(bytes.view());
  hawser::fuzz::CheckRejection(bytes.view());
  return 0;
}
