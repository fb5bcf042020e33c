#include "hawser/transport/wire/handshake.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "hawser/base/endian.h"
#include "hawser/base/peer_text.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {
namespace {

// "HWSR": the first bytes that either side sends.
constexpr uint32_t kMagic = 0x52535748;

// magic 4, length 1, role 1, version 2, features 4, slots 2, reserved 2, receive buffer 4, message max 8,
// session 16
static_assert(kHandshakeBytes == 4 + 1 + 1 + 2 + 4 + 2 + 2 + 4 + 8 + 16);
static_assert(kHandshakeBytes <= fabric::kConnectPrivateDataMax);

// magic 4, length 1, code 1, version 2; then the text
constexpr size_t kRejectionPrefixBytes = 8;

// What follows a rejection, behind its declared length, where older clients do not look: kind 1, bytes of the
// value 1, the value. Zeros end it.
constexpr size_t kTailPrefixBytes = 2;
constexpr uint8_t kTailOfProofPort = 1;
constexpr size_t kProofPortBytes = 2;

const uint8_t* Bytes(absl::string_view data) { return reinterpret_cast<const uint8_t*>(data.data()); }

}  // namespace

SessionToken NewSessionToken(Environment& environment) {
  SessionToken token;
  environment.FillRandom(absl::MakeSpan(token));
  return token;
}

std::string Encode(const Handshake& handshake) {
  uint8_t out[kHandshakeBytes] = {};
  StoreLittle32(out, kMagic);
  out[4] = kHandshakeBytes;
  out[5] = static_cast<uint8_t>(handshake.role);
  StoreLittle16(out + 6, handshake.version);
  StoreLittle32(out + 8, handshake.features);
  StoreLittle16(out + 12, handshake.slots);
  StoreLittle32(out + 16, handshake.receive_buffer_bytes);
  StoreLittle64(out + 20, handshake.message_bytes_max);
  std::copy(handshake.session.begin(), handshake.session.end(), out + 28);
  return std::string(reinterpret_cast<const char*>(out), sizeof(out));
}

absl::StatusOr<Handshake> DecodeHandshake(absl::string_view data) {
  const uint8_t* const in = Bytes(data);
  if (data.size() < 8 || LoadLittle32(in) != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer's ", data.size(), " bytes of private data are no Hawser handshake"));
  }
  Handshake handshake;
  handshake.version = LoadLittle16(in + 6);
  // Checked before all fields whose layout another version may change.
  if (handshake.version != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the peer speaks version ", handshake.version,
                                                      " of the Hawser protocol, this side version ",
                                                      kProtocolVersion, "; update the older of the two"));
  }
  if (in[4] < kHandshakeBytes || data.size() < in[4]) {
    return absl::InvalidArgumentError(absl::StrCat("the peer's handshake was cut short: ", data.size(),
                                                   " bytes arrived and it says ", in[4], ", needed are ",
                                                   kHandshakeBytes));
  }
  // The bytes behind the length must be zero, so that a later version can use them.
  if (const size_t at = data.find_first_not_of('\0', in[4]); at != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("the peer's handshake says ", in[4],
                                                   " bytes, but behind them byte ", at, " is not zero"));
  }
  handshake.role = static_cast<Role>(in[5]);
  handshake.features = LoadLittle32(in + 8);
  handshake.slots = LoadLittle16(in + 12);
  handshake.receive_buffer_bytes = LoadLittle32(in + 16);
  handshake.message_bytes_max = LoadLittle64(in + 20);
  std::copy(in + 28, in + 44, handshake.session.begin());
  if (const uint16_t reserved = LoadLittle16(in + 14); reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer's handshake sets reserved bits ", absl::Hex(reserved)));
  }
  const auto connects = static_cast<uint8_t>(ProvenBy(handshake.role));
  if (connects < static_cast<uint8_t>(Role::kForward) || connects > static_cast<uint8_t>(Role::kLane) ||
      in[5] > static_cast<uint8_t>(Role::kProveLane)) {
    return absl::InvalidArgumentError(absl::StrCat("the peer's handshake names role ", in[5]));
  }
  if (handshake.slots < 1 || handshake.slots > kSlotsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer's handshake wants ", handshake.slots, " slots, allowed are 1 to ", kSlotsMax));
  }
  if (handshake.receive_buffer_bytes < kReceiveBufferMin ||
      handshake.receive_buffer_bytes > kReceiveBufferMax || handshake.receive_buffer_bytes % 64 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the peer's handshake wants receive buffers of ",
                                                   handshake.receive_buffer_bytes,
                                                   " bytes, allowed are multiples of 64 "
                                                   "from ",
                                                   kReceiveBufferMin, " to ", kReceiveBufferMax));
  }
  return handshake;
}

absl::StatusOr<Handshake> DecodeConnect(absl::string_view data) {
  absl::StatusOr<Handshake> hello = DecodeHandshake(data);
  const bool names_proof = hello.ok() && (hello->features & kFeatureProof) != 0;
  if (hello.ok() && !names_proof && ProvenBy(hello->role) == Role::kForward &&
      hello->session != SessionToken()) {
    return absl::InvalidArgumentError(
        "the peer's forward handshake names a session, which only the server gives it");
  }
  return hello;
}

absl::StatusOr<Handshake> DecodeAccept(absl::string_view data, Role role) {
  absl::StatusOr<Handshake> answer = DecodeHandshake(data);
  if (answer.ok() && answer->role != role) {
    return absl::InvalidArgumentError(absl::StrCat("the peer accepted role ", static_cast<int>(answer->role),
                                                   ", offered was role ", static_cast<int>(role)));
  }
  return answer;
}

namespace {

std::string RejectionWithTail(const absl::Status& why, absl::string_view tail) {
  std::string out(kRejectionPrefixBytes, '\0');
  auto* const bytes = reinterpret_cast<uint8_t*>(&out[0]);
  const absl::string_view text =
      absl::string_view(why.message())
          .substr(0, fabric::kRejectPrivateDataMax - kRejectionPrefixBytes - tail.size());
  StoreLittle32(bytes, kMagic);
  bytes[4] = static_cast<uint8_t>(kRejectionPrefixBytes + text.size());
  bytes[5] = static_cast<uint8_t>(why.code());
  StoreLittle16(bytes + 6, kProtocolVersion);
  return absl::StrCat(out, text, tail);
}

bool IsRejection(absl::string_view data) {
  const uint8_t* const in = Bytes(data);
  return data.size() >= kRejectionPrefixBytes && LoadLittle32(in) == kMagic &&
         in[4] >= kRejectionPrefixBytes && in[4] <= data.size();
}

}  // namespace

std::string EncodeRejection(const absl::Status& why) { return RejectionWithTail(why, {}); }

std::string EncodeRejection(const absl::Status& why, uint16_t proof_port) {
  uint8_t tail[kTailPrefixBytes + kProofPortBytes] = {kTailOfProofPort, kProofPortBytes};
  StoreLittle16(tail + kTailPrefixBytes, proof_port);
  return RejectionWithTail(why, {reinterpret_cast<const char*>(tail), sizeof(tail)});
}

absl::StatusOr<uint16_t> DecodeProofPort(absl::string_view rejection) {
  if (!IsRejection(rejection) || LoadLittle16(Bytes(rejection) + 6) != kProtocolVersion) return uint16_t{0};
  absl::string_view tail = rejection.substr(Bytes(rejection)[4]);
  while (!tail.empty() && tail[0] != 0) {
    if (tail.size() < kTailPrefixBytes || tail.size() - kTailPrefixBytes < Bytes(tail)[1]) {
      return absl::InvalidArgumentError("the peer's rejection was cut short");
    }
    const absl::string_view value = tail.substr(kTailPrefixBytes, Bytes(tail)[1]);
    if (tail[0] != kTailOfProofPort) {  // A later version has it.
      tail.remove_prefix(kTailPrefixBytes + value.size());
      continue;
    }
    if (value.size() != kProofPortBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the peer's rejection tells a port in ", value.size(), " bytes"));
    }
    const uint16_t port = LoadLittle16(Bytes(value));
    if (port < kProofPortMin) {
      return absl::InvalidArgumentError(absl::StrCat("the peer wants credentials to be shown at TCP port ",
                                                     port, ": those below ", kProofPortMin,
                                                     " are the system's, so no connection goes there"));
    }
    return port;
  }
  return uint16_t{0};
}

bool IsRefusedByPeer(const absl::Status& why) { return absl::StrContains(why.message(), kRejected); }

absl::Status WithoutReason(const absl::Status& why) {
  return absl::IsPermissionDenied(why) ? absl::UnavailableError(why.message()) : why;
}

absl::Status DecodeRejection(absl::string_view data) {
  const uint8_t* const in = Bytes(data);
  if (!IsRejection(data)) {
    return absl::UnavailableError("the peer rejected the connection and did not say why");
  }
  const absl::string_view text = data.substr(kRejectionPrefixBytes, in[4] - kRejectionPrefixBytes);
  const auto code = static_cast<absl::StatusCode>(in[5]);
  const bool known = in[5] >= 1 && in[5] <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? code : absl::StatusCode::kUnknown,
                      absl::StrCat(kRejected, EscapePeerText(text)));
}

}  // namespace hawser::transport
