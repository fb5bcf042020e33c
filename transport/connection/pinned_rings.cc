#include "hawser/transport/connection/pinned_rings.h"

#include <algorithm>
#include <cstddef>

#include "hawser/transport/connection/receive_ring.h"
#include "hawser/transport/connection/send_queue.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/options.h"
#include "hawser/transport/fabric/verbs/rings.h"
#include "hawser/transport/poller/queue_depths.h"

namespace hawser::transport {
namespace {

namespace rings = fabric::rings;

// What a poller with `connections` pins for its completion queues. Each connection takes `places`.
uint64_t CompletionQueueBytes(uint64_t connections, uint64_t places) {
  uint64_t bytes = 0, held = 0;
  size_t index = 0;
  do {
    const uint64_t entries =
        std::max<uint64_t>(places, rings::CompletionQueueEntries(kCompletionQueueDepth, index++));
    bytes += rings::PinnedBytesOfCompletionQueue(entries);
    held += entries / places;
  } while (held < connections);
  return bytes;
}

}  // namespace

uint64_t PinnedRingBytes(uint64_t pollers, uint64_t connections, const ConnectionOptions& options,
                         bool windows) {
  const uint64_t sends = rings::SendEntries(SendQueue::Depth(options.slots, kReadDepth), windows);
  const uint64_t receives = ReceiveRing::Depth(options.slots);
  const rings::QueuePairShape shape = {.sends = sends,
                                       .receives = receives,
                                       .send_sges = static_cast<uint32_t>(fabric::kSgeMax),
                                       .inline_bytes = fabric::VerbsFabricOptions().inline_bytes};
  const uint64_t at_most = (connections + pollers - 1) / pollers;
  return connections * rings::PinnedBytes(shape) + pollers * CompletionQueueBytes(at_most, sends + receives);
}

}  // namespace hawser::transport
