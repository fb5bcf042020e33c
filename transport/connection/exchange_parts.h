#ifndef HAWSER_TRANSPORT_CONNECTION_EXCHANGE_PARTS_H_
#define HAWSER_TRANSPORT_CONNECTION_EXCHANGE_PARTS_H_

#include "hawser/transport/connection/control.h"
#include "hawser/transport/connection/inbound.h"
#include "hawser/transport/connection/outbound.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/connection/send_queue.h"

namespace hawser::transport {

// The parts of a connection that its Requester or Responder uses. They outlive it.
struct ExchangeParts {
  Port& port;
  SendQueue& sends;
  Outbounds& outbounds;
  Inbounds& inbounds;
  Control& control;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_EXCHANGE_PARTS_H_
