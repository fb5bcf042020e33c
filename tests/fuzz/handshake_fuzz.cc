// What is said before the first exchange: DecodeHandshake(), DecodeRejection(), and what proves who connects.
#include "absl/status/status.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/uri.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/options.h"
#include "hawser/transport/wire/proof.h"

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

transport::Proof KnownProof() {
  transport::Proof proof;
  proof.number.fill(0x11);
  proof.key.fill(0x22);
  return proof;
}

Handshake KnownHello() {
  Handshake hello;
  hello.slots = 32;
  hello.receive_buffer_bytes = 4096;
  hello.message_bytes_max = 512 << 20;
  return hello;
}

transport::Proof BoundProof() {
  transport::Proof proof = KnownProof();
  proof.bound_to =
      transport::Dialed{*transport::ParseNumericHost("10.0.0.2"), *transport::ParseNumericHost("fd00::2")};
  return proof;
}

// Only what was made with the key is a proof, whatever surrounds it.
void CheckProof(absl::string_view bytes, const transport::Proof& proof) {
  const absl::StatusOr<Handshake> hello = transport::DecodeConnect(bytes);
  if (hello.ok()) {
    transport::ProofTable table(1, 1);
    const SocketAddress peer = *transport::ParseNumericHost("10.0.0.1");
    transport::ProofTable::Claim claim = {.key = proof.key, .role = hello->role, .peer = peer};
    SocketAddress local = peer;
    if (proof.bound_to.has_value()) {
      claim.bound_to = proof.bound_to->tls;
      local = proof.bound_to->connection;
    }
    FUZZ_EXPECT(table.Add(proof.number, std::move(claim)).ok());
    const absl::StatusOr<transport::Proven> proven = table.Use(*hello, bytes, peer, local);
    if (proven.ok()) {
      const std::string again = transport::EncodeConnect(proven->hello, proof);
      FUZZ_EXPECT(proven->connect == again && bytes.substr(0, again.size()) == again);
      FUZZ_EXPECT(!table.Use(*hello, bytes, peer, local).ok(), "a proof was used twice");
    } else {
      FUZZ_EXPECT(absl::IsUnauthenticated(proven.status()) || absl::IsUnavailable(proven.status()),
                  proven.status().ToString());
    }
  }
  const std::string connect = transport::EncodeConnect(KnownHello(), proof);
  const absl::StatusOr<Handshake> answer =
      transport::DecodeAccept(bytes, transport::Role::kForward, proof.key, connect);
  if (answer.ok()) {
    const std::string again = transport::EncodeAccept(*answer, proof.key, connect);
    FUZZ_EXPECT(bytes.substr(0, again.size()) == again);
  }
}

void CheckRejection(absl::string_view bytes) {
  const absl::Status decoded = transport::DecodeRejection(bytes);
  FUZZ_EXPECT(!decoded.ok() && !decoded.message().empty());
  FUZZ_EXPECT(decoded.message().size() <= 6 * bytes.size() + 64);

  const absl::Status again = transport::DecodeRejection(transport::EncodeRejection(decoded));
  FUZZ_EXPECT(again.code() == decoded.code(), again.ToString());
  FUZZ_EXPECT(transport::EncodeRejection(decoded).size() <= fabric::kRejectPrivateDataMax);

  const absl::StatusOr<uint16_t> port = transport::DecodeProofPort(bytes);
  if (!port.ok() || *port == 0) return;
  FUZZ_EXPECT(*port >= transport::kProofPortMin);
  const std::string telling = transport::EncodeRejection(decoded, *port);
  FUZZ_EXPECT(telling.size() <= fabric::kRejectPrivateDataMax &&
              *transport::DecodeProofPort(telling) == *port);
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
  const transport::Proof proof = KnownProof();
  const std::string proven = transport::EncodeConnect(KnownHello(), proof);
  const std::string proven_accept = transport::EncodeAccept(KnownHello(), proof.key, proven);
  hello.role = transport::Role::kProveReverse;
  const std::string proves = transport::Encode(hello);
  std::string later = forward;
  later[6] = 2;
  return {{"forward", forward},
          {"padded", padded},
          {"later", later},
          {"proven", proven},
          {"proven_accept", proven_accept + std::string(120, '\0')},
          {"proves", proves},
          {"bound", transport::EncodeConnect(KnownHello(), BoundProof())},
          {"telling", transport::EncodeRejection(absl::FailedPreconditionError("elsewhere"), 7471)},
          {"rejection", transport::EncodeRejection(absl::UnavailableError("the server is shutting down"))},
          {"long_rejection", transport::EncodeRejection(absl::InternalError(std::string(300, 'x')))}};
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const hawser::fuzz::ExactCopy bytes({reinterpret_cast<const char*>(data), size});
  hawser::fuzz::CheckHandshake(bytes.view());
  hawser::fuzz::CheckProof(bytes.view(), hawser::fuzz::KnownProof());
  hawser::fuzz::CheckProof(bytes.view(), hawser::fuzz::BoundProof());
  hawser::fuzz::CheckRejection(bytes.view());
  return 0;
}
