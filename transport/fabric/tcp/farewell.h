#ifndef HAWSER_TRANSPORT_FABRIC_TCP_FAREWELL_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_FAREWELL_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {

// Tells the peer of `stream`, between two frames, why this side ends the connection, and ends sending. If the
// socket has no room for all of it, the peer gets a part, or nothing. `acknowledged` goes into the frame.
void SendFarewell(Stream& stream, absl::string_view why, uint32_t acknowledged);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_FAREWELL_H_
