#ifndef HAWSER_TRANSPORT_MESSAGE_SENDER_H_
#define HAWSER_TRANSPORT_MESSAGE_SENDER_H_

#include "absl/status/status.h"
#include "hawser/transport/grants.h"
#include "hawser/transport/message.h"
#include "hawser/transport/wire.h"

namespace hawser::transport {

class Port;
class SendQueue;

// Queues `message` as one SEND: whole, if it fits the agreed receive buffer; otherwise its large segments are
// granted to the peer, which READs them from where they were built, and the small ones go along. `header`
// wants its kind, slot, generation and timeout. The message stays untouched, and in place, until the exchange
// has ended. If not OK, nothing was queued:
//   InvalidArgument:   larger than the peer takes or than this side's own limit, or too many segments
//   ResourceExhausted: the message could not be built in registered memory, or nothing more can be granted
//   anything else:     the connection has just failed, and its handlers have heard
absl::Status SendMessage(Port& port, SendQueue& sends, Revocations& revocations, Header& header,
                         OutgoingMessage& message, Grants& grants);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MESSAGE_SENDER_H_
