#ifndef HAWSER_TRANSPORT_WIRE_HANDSHAKE_H_
#define HAWSER_TRANSPORT_WIRE_HANDSHAKE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/clock/environment.h"

// What both sides send before the first exchange, in the private data of the connection manager. Field table:
// rpc/PROTOCOL.md.
namespace hawser::transport {

inline constexpr uint16_t kProtocolVersion = 1;

// Names a session: a forward connection and the reverse one that belongs to it. 128 random bits, made by the
// server, so that no client can guess its way into the session of another.
using SessionToken = std::array<uint8_t, 16>;
SessionToken NewSessionToken(Environment& environment);

enum class Role : uint8_t {
  kForward = 1,  // The dialing side sends requests.
  kReverse = 2,  // The dialing side answers them.
  kProbe = 3,    // Wants no connection: what has become of the session? The rejection is the answer.
  kLane = 4,     // Carries one-sided operations of the dialing side: see rpc/PROTOCOL.md.
  // Over TLS: carries no messages, but authenticates the connection of that role over RDMA (proof.h).
  kProveForward = 17,
  kProveReverse = 18,
  kProveProbe = 19,
  kProveLane = 20,
};
// Which proof a connection of `role` needs where its fabric carries no TLS, and the way back.
inline constexpr uint8_t kProofRoles = 16;
constexpr bool IsProof(Role role) { return static_cast<uint8_t>(role) >= kProofRoles; }
constexpr Role ProofFor(Role role) { return static_cast<Role>(static_cast<uint8_t>(role) | kProofRoles); }
constexpr Role ProvenBy(Role proof) { return static_cast<Role>(static_cast<uint8_t>(proof) & ~kProofRoles); }

// Bits of Handshake::features. Bits that we do not know are ignored.
//
// Requests are bounded by credits (credits.h), since no fabric below lets them wait for a receive. Offered in
// the connect and repeated in the accept, or there are none. A reverse connect offers it if the forward
// connection has it, and then the accept has to repeat it.
inline constexpr uint32_t kFeatureCredits = 1;
// A proof of who the sender is follows the handshake (proof.h). Of a connect: its field `session` is the
// number of the proof.
inline constexpr uint32_t kFeatureProof = 2;

// A response may end a grant of its request (fabric::Fabric::sends_end_grants()): its SEND says which.
// Offered in the connect and repeated in the accept by fabrics that can do this, or no response does it.
inline constexpr uint32_t kFeatureEndsGrants = 4;

// A proof is good only for where its client has dialed (proof.h). Offered by the client to whom it proves,
// over TLS, and repeated by the server there, or the proof is not bound.
inline constexpr uint32_t kFeatureBoundProof = 8;

// What atomics on a lane are atomic with at the owner, who says so in the accept: those of all its peers that
// come through the same device; and the atomic instructions of its processor, too. Neither: it has none.
inline constexpr uint32_t kFeatureAtomics = 16;
inline constexpr uint32_t kFeatureAtomicsWithProcessor = 32;
// In the accept of a lane: its owner knows the ping (lane_message.h).
inline constexpr uint32_t kFeatureLanePing = 64;
// Of a lane: this side knows counted WRITEs (LaneMessage::Kind::kArrived). Each side says it for itself.
inline constexpr uint32_t kFeatureArrivals = 128;

// Credits of a new connection of so many slots that has kFeatureCredits.
constexpr uint32_t FirstCredits(uint32_t slots) { return slots < 2 ? slots : 2; }

struct Handshake {
  uint16_t version = kProtocolVersion;
  Role role = Role::kForward;
  uint32_t features = 0;  // kFeature...
  uint16_t slots = 0;
  uint32_t receive_buffer_bytes = 0;
  uint64_t message_bytes_max = 0;
  // In an accept: the new session. In a reverse connect, a probe or a lane, and in the proofs for them: the
  // session it belongs to.
  SessionToken session = {};
};
inline constexpr size_t kHandshakeBytes = 44;

// Both forms fit fabric::kConnectPrivateDataMax.
std::string Encode(const Handshake& handshake);

// `data` may be padded with zeros, as connection managers do. FailedPrecondition: another version (the text
// names both); InvalidArgument: not a Hawser handshake, cut short, followed by what is no padding, or values
// out of range.
absl::StatusOr<Handshake> DecodeHandshake(absl::string_view data);
// Decodes a connecting peer's handshake. Also refuses a forward one, or the proof for one, that names a
// session. With kFeatureProof the field is the number of the proof, so it is not checked.
absl::StatusOr<Handshake> DecodeConnect(absl::string_view data);
// Decodes an accepting peer's answer to a connect of `role`; also refuses another role.
absl::StatusOr<Handshake> DecodeAccept(absl::string_view data, Role role);

// Why a connection was rejected: a code and as much of a text as fits fabric::kRejectPrivateDataMax.
std::string EncodeRejection(const absl::Status& why);
// Likewise, and at which TCP port of its address the server takes proofs (prover.h). Older clients get the
// text only.
std::string EncodeRejection(const absl::Status& why, uint16_t proof_port);
// Never OK. Unavailable for data that is not Hawser's. The text is kRejected and the peer's own text, escaped
// (EscapePeerText()).
inline constexpr absl::string_view kRejected = "the peer rejected the connection: ";
absl::Status DecodeRejection(absl::string_view data);
// What fabric::ConnectionHandler::OnConnectFailed() says of a rejection without data: Unavailable. Hawser
// rejects with a reason, so the peer's program ended, or the kernel of its machine found no listener.
absl::Status WithoutReason(const absl::Status& why);

// The port that a rejection names; 0: it names none. InvalidArgument: it names one that no server of ours
// has.
absl::StatusOr<uint16_t> DecodeProofPort(absl::string_view rejection);
// Below are the ports of the system's services: no rejection may lead this side there.
inline constexpr uint16_t kProofPortMin = 1024;

// The peer refused the connection, and said so: the text has kRejected. What this side lacks itself says
// nothing of a peer.
bool IsRefusedByPeer(const absl::Status& why);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_WIRE_HANDSHAKE_H_
