#ifndef HAWSER_TRANSPORT_EXCHANGE_PARTS_H_
#define HAWSER_TRANSPORT_EXCHANGE_PARTS_H_

#include "hawser/transport/control.h"
#include "hawser/transport/grants.h"
#include "hawser/transport/port.h"
#include "hawser/transport/rendezvous.h"
#include "hawser/transport/send_queue.h"

namespace hawser::transport {

// What slots send and receive by.
struct ExchangeParts {
  Port& port;
  SendQueue& sends;
  Revocations& revocations;
  PullQueue& pulls;
  Control& control;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_EXCHANGE_PARTS_H_
