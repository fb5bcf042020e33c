#ifndef HAWSER_TRANSPORT_FABRIC_TCP_WHY_CLOSED_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_WHY_CLOSED_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/tcp/frame_reader.h"
#include "hawser/transport/fabric/tcp/frame_writer.h"
#include "hawser/transport/fabric/tcp/queue_pair_life.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {

// Why a connection that was established is closed by its peer, or lost: from the peer's farewell, from TLS,
// or from the error of the socket. `refused`, `violation`: of a peer that was refused, why.
absl::Status WhyClosed(const TcpQueuePairLife& life, const Stream& stream, const FrameReader& reader,
                       const FrameWriter& writer, absl::string_view refused, Violation violation);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_WHY_CLOSED_H_
