#ifndef HAWSER_TRANSPORT_FABRIC_TCP_FRAME_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_FRAME_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// The wire format of an established connection: each direction is a sequence of frames, a frame is a header
// and, for kSend, kWrite, kReadResponse, kFarewell, kPush, kCompareSwap and kFetchAdd, `length_bytes` of
// payload. All integers are little-endian.
//
// Requests (kSend, kWrite, kReadRequest, kPush, kCompareSwap, kFetchAdd) are numbered from 0 in the order in
// which they travel, modulo 2^32; the number is not sent. A responder executes them in that order, except
// that it answers a READ when it comes to it: `acknowledged` counts a READ when it was accepted. READs and
// atomics are answered in order, a READ in fragments, an atomic with the 8 bytes that were there before.
namespace hawser::fabric {

enum class FrameKind : uint8_t {
  kSend = 1,
  kWrite = 2,
  kReadRequest = 3,
  kReadResponse = 4,
  kAck = 5,  // Carries nothing but `acknowledged`.
  kNak = 6,  // The responder refuses a request and everything behind it.
  // A text for people: why the sender closes the connection, which it does right after this frame. Sent only
  // if that is possible at once.
  kFarewell = 7,
  // Memory that the receiver may READ, sent ahead: the receiver uses the bytes instead of a READ, or drops
  // them. Sent only to a peer whose greeting has kTakesPushes.
  kPush = 8,
  // Atomics. The payload has their operands, 8 bytes each: kCompareSwap, what to compare with and what to
  // swap in; kFetchAdd, what to add. Sent only to a peer whose greeting has kTakesAtomics.
  kCompareSwap = 9,
  kFetchAdd = 10,
};

// On a kSend, kWrite or kPush: the requester waits for an acknowledgement. Without the flag it does not wait,
// and the responder sends none just for this request. The answer to a READ acknowledges it.
inline constexpr uint8_t kAckRequestedFlag = 0x01;
// On a kSend: the requester's next request is a kPush. The receiver acts on the SEND when that has begun to
// come.
inline constexpr uint8_t kPushFollowsFlag = 0x02;

struct FrameHeader {
  FrameKind kind = FrameKind::kAck;
  uint8_t flags = 0;
  uint8_t status = 0;  // kNak: a CompletionStatus for the request that it names.
  uint8_t reserved = 0;
  uint32_t length_bytes = 0;  // The payload's. kReadRequest: that of the memory to be read; kAck, kNak: 0.
  // Requests of the receiver of this frame that the sender of this frame has executed so far, modulo 2^32.
  uint32_t acknowledged = 0;
  // kWrite, kReadRequest, atomics: the rkey; kPush: that of the sender's own memory. kReadResponse, kNak: the
  // number of the request.
  uint32_t key = 0;
  // kWrite, kReadRequest, atomics: of the remote memory; kPush: of the sender's own. kReadResponse: offset of
  // the fragment.
  uint64_t address = 0;
};

// No padding: it would cross.
static_assert(sizeof(FrameHeader) == 24 && std::has_unique_object_representations_v<FrameHeader>);
static_assert(std::endian::native == std::endian::little, "headers are copied to the wire as they are");

// Long enough to amortise a system call, short enough for a SEND behind it not to wait: 128 KiB are 10 us at
// 100 Gbit/s.
inline constexpr uint32_t kReadFragmentMax = 128 * 1024;

// The same where the owner of the memory changes it meanwhile: such fragments are copied, word by word.
inline constexpr uint32_t kWordFragmentMax = 16 * 1024;

// The least size of a fragment that is not the last of its READ: each fragment costs the requester a system
// call, so a peer that answers byte by byte breaks the protocol. Hawser itself sends kReadFragmentMax.
inline constexpr uint32_t kReadFragmentMin = 4 * 1024;

// The most payload of one kPush: 128 KiB of data, and the rest of the segment that holds it. A message waits
// behind a push no longer than behind a fragment of a READ.
inline constexpr uint32_t kPushBytesMax = 132 * 1024;

// The longest text of a kFarewell.
inline constexpr uint32_t kFarewellBytesMax = 256;

// The most bytes of one SEND, READ or WRITE: what NICs allow (ibv_port_attr::max_msg_sz is 2^30 or 2^31).
inline constexpr uint64_t kMessageBytesMax = uint64_t{1} << 30;

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_FRAME_H_
