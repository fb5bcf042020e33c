#ifndef HAWSER_TRANSPORT_POLLER_COUNTS_H_
#define HAWSER_TRANSPORT_POLLER_COUNTS_H_

#include "hawser/base/count.h"
#include "hawser/transport/poller/poller_stats.h"

namespace hawser::transport {

// Messages of all connections of a poller; see PollerStats::Messages.
struct MessageCounts {
  Count whole, pushed, read;

  PollerStats::Messages values() const { return {whole.value(), pushed.value(), read.value()}; }
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_COUNTS_H_
