#ifndef HAWSER_TRANSPORT_FABRIC_TCP_GREETING_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_GREETING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/stream.h"

// The part of the connection manager: the first bytes of a TCP connection, one greeting from each side. The
// requester sends kConnect. The responder answers kAccept (frames follow, see frame.h) or kReject (and
// closes).
//
//   offset  bytes
//        0      8  magic: 0x89 "HAWSER" 0x0a
//        8      2  version of greeting and frames, little-endian: 1
//       10      1  kind
//       11      1  length of the private data
//       12      3  READ depth, little-endian: kConnect, the requester's; kAccept, the minimum of both
//       15      1  flags: 1, takes frames of kind kPush; kAccept: and so does the other side
//                            2, kReject: the listener speaks TLS only
//                            4, takes frames of kinds kCompareSwap and kFetchAdd; kAccept: likewise
//       16      -  private data
namespace hawser::fabric {

enum class GreetingKind : uint8_t { kConnect = 1, kAccept = 2, kReject = 3 };

inline constexpr size_t kGreetingMagicBytes = 8;
inline constexpr size_t kGreetingHeaderBytes = 16;
inline constexpr size_t kGreetingBytesMax = kGreetingHeaderBytes + kAcceptPrivateDataMax;
inline constexpr uint16_t kGreetingVersion = 1;

// The first byte is not ASCII, so that no terminal and no text protocol looks like a peer.
inline constexpr absl::string_view kGreetingMagic("\x89HAWSER\n", kGreetingMagicBytes);

// A flag. A listener that does not know the flags sees a very large READ depth, answers with its own as the
// minimum, and sets no flag.
inline constexpr uint8_t kTakesPushes = 0x01;
// In kReject, from a listener with credentials to a peer that does not begin with TLS.
inline constexpr uint8_t kNeedsTls = 0x02;
// A flag, as kTakesPushes.
inline constexpr uint8_t kTakesAtomics = 0x04;
// Those of frames that this side takes.
inline constexpr uint8_t kTakenFrames = kTakesPushes | kTakesAtomics;

struct Greeting {
  uint16_t version = kGreetingVersion;
  GreetingKind kind = GreetingKind::kConnect;
  uint32_t read_depth = 0;
  uint8_t flags = 0;
  uint8_t private_data_bytes = 0;
};

std::string EncodeGreeting(GreetingKind kind, uint32_t read_depth, absl::string_view private_data,
                           uint8_t flags = 0);

// Reads a greeting from a stream, and no byte beyond it.
class GreetingReader {
 public:
  enum class Result {
    kIncomplete,  // Nothing more for now.
    kComplete,
    kClosed,     // End of file, or error() as errno.
    kNotHawser,  // Not the magic; see bytes().
    kMalformed,  // Another version, unknown kind or private data too long; greeting() is filled in.
  };

  // Private data of more than `private_data_max` bytes is malformed.
  explicit GreetingReader(size_t private_data_max) : private_data_max_(private_data_max) {}

  Result Read(Stream& stream);

  const Greeting& greeting() const { return greeting_; }
  absl::string_view private_data() const;
  absl::string_view bytes() const { return {reinterpret_cast<const char*>(buffer_.data()), size_}; }
  int error() const { return error_; }

 private:
  size_t Wanted() const;
  Result Check();

  const size_t private_data_max_;
  Greeting greeting_;
  size_t size_ = 0;
  int error_ = 0;
  std::array<uint8_t, kGreetingBytesMax> buffer_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_GREETING_H_
