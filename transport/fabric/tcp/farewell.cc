#include "hawser/transport/fabric/tcp/farewell.h"

#include <sys/socket.h>

#include <cstring>

#include "hawser/transport/fabric/tcp/frame.h"

namespace hawser::fabric {
namespace {

// The most unread bytes of the peer that this side reads and drops after it has sent a farewell.
constexpr size_t kDrainBytesMax = 256 * 1024;

}  // namespace

void SendFarewell(Stream& stream, absl::string_view why, uint32_t acknowledged) {
  why = why.substr(0, kFarewellBytesMax);
  FrameHeader header = {.kind = FrameKind::kFarewell,
                        .length_bytes = static_cast<uint32_t>(why.size()),
                        .acknowledged = acknowledged};
  char frame[sizeof(header) + kFarewellBytesMax];
  std::memcpy(frame, &header, sizeof(header));
  std::memcpy(frame + sizeof(header), why.data(), why.size());
  // If the socket has no room for all of it, the peer finds the end in the middle of a frame.
  iovec segment = {frame, sizeof(header) + why.size()};
  if (stream.Send(&segment, 1) <= 0) return;
  if (stream.tls() != nullptr) stream.tls()->End();
  shutdown(stream.fd(), SHUT_WR);
  // If the socket is closed with unread bytes, the kernel resets the connection, and the farewell may be
  // lost. If bytes arrive after this loop, the peer may lose the reason; this side loses nothing.
  uint8_t dropped[16 * 1024];
  for (size_t drained = 0; drained < kDrainBytesMax;) {
    const ssize_t n = recv(stream.fd(), dropped, sizeof(dropped), MSG_DONTWAIT);
    if (n <= 0) return;
    drained += static_cast<size_t>(n);
  }
}

}  // namespace hawser::fabric
