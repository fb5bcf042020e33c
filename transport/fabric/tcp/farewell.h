#ifndef HAWSER_TRANSPORT_FABRIC_TCP_FAREWELL_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_FAREWELL_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {

// Tells the peer of `stream`, between two frames, why this side ends the connection, and ends sending. If the
// socket has no room for all of it, the peer gets a part, or nothing. `acknowledged` goes into the frame.
// `staging`: room to read what the peer has sent, which is dropped.
void SendFarewell(Stream& stream, absl::string_view why, uint32_t acknowledged, absl::Span<uint8_t> staging);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_FAREWELL_H_
