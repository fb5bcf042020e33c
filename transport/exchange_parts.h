#ifndef HAWSER_TRANSPORT_EXCHANGE_PARTS_H_
#define HAWSER_TRANSPORT_EXCHANGE_PARTS_H_

#include "hawser/transport/control.h"
#include "hawser/transport/inbound.h"
#include "hawser/transport/outbound.h"
#include "hawser/transport/port.h"
#include "hawser/transport/send_queue.h"

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

#endif  // HAWSER_TRANSPORT_EXCHANGE_PARTS_H_
