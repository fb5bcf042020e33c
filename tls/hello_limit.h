#ifndef HAWSER_TLS_HELLO_LIMIT_H_
#define HAWSER_TLS_HELLO_LIMIT_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace hawser::tls {

// Bounds what a client makes OpenSSL allocate before it is known: OpenSSL allocates what a message's header
// announces, up to 128 KiB for a ClientHello, before it has come. One for each connection of a server.
// Thread: one at a time.
class HelloLimit {
 public:
  static constexpr size_t kHelloBytesMax = 16 * 1024;

  // Takes the next bytes of the stream, in pieces of any length. False: a ClientHello above kHelloBytesMax is
  // announced.
  bool Allows(absl::Span<const uint8_t> bytes);

 private:
  bool AllowsMessages(absl::Span<const uint8_t> bytes);

  bool is_over_ = false;             // What follows is encrypted, or no TLS.
  std::array<uint8_t, 5> record_{};  // The header of the current record (RFC 8446, 5.1).
  size_t record_header_bytes_ = 0;
  size_t record_left_bytes_ = 0;
  std::array<uint8_t, 4> message_{};  // The current message of the handshake begins so (RFC 8446, 4).
  size_t message_header_bytes_ = 0;
  size_t message_left_bytes_ = 0;
};

}  // namespace hawser::tls

#endif  // HAWSER_TLS_HELLO_LIMIT_H_
