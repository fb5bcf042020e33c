#ifndef HAWSER_TRANSPORT_CONNECTION_CONNECTION_PARTS_H_
#define HAWSER_TRANSPORT_CONNECTION_CONNECTION_PARTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hawser/transport/clock/environment.h"
#include "hawser/transport/connection/control.h"
#include "hawser/transport/connection/exchange_parts.h"
#include "hawser/transport/connection/inbound.h"
#include "hawser/transport/connection/keepalive.h"
#include "hawser/transport/connection/outbound.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/connection/receive_ring.h"
#include "hawser/transport/connection/requester.h"
#include "hawser/transport/connection/responder.h"
#include "hawser/transport/connection/send_queue.h"

namespace hawser::transport {

// What carries the exchanges of one connection. Its Opening sets the parts up, its Ending ends them.
// Thread:   on the poller.
// Lifetime: part of its Connection.
struct ConnectionParts {
  ConnectionParts(Port& port, Control::Source& of_control, Keepalive::Source& of_keepalive)
      : send_queue(port),
        outbounds(port, send_queue),
        receive_ring(port),
        inbounds(port, send_queue),
        control(port, send_queue, of_control),
        keepalive(port, control, inbounds, of_keepalive) {}
  ConnectionParts(const ConnectionParts&) = delete;
  ConnectionParts& operator=(const ConnectionParts&) = delete;

  // What both handshakes say is known.
  bool are_agreed() const { return requester != nullptr || responder != nullptr; }
  uint32_t exchanges_in_flight() const {
    return requester != nullptr ? requester->in_flight() : responder != nullptr ? responder->in_flight() : 0;
  }
  uint32_t requests_in_flight() const { return requester != nullptr ? requester->in_flight() : 0; }
  // See Connection.
  std::string DescribeSlots() const {
    return requester != nullptr ? requester->DescribeSlots() : "not connected";
  }
  uint32_t slots_given() const { return responder != nullptr ? responder->credits().limit() : 0; }
  uint32_t slots_wanted() const { return responder != nullptr ? responder->credits().wanted() : 0; }

  // See Control::Source.
  std::optional<ControlOp> NextControlOp() {
    return requester != nullptr ? requester->NextControlOp() : std::nullopt;
  }
  bool HasCreditsToAdvertise() const { return responder != nullptr && responder->credits().has_news(); }
  uint16_t AdvertiseCredits() {
    if (responder == nullptr) return 0;
    responder->credits().OnAdvertised();
    return responder->credits().given();
  }

  // Messages that an honest peer may send after everything that we have queued. Once they are agreed.
  uint32_t messages_that_may_come() const {
    // The peer's control request, and its answer to ours. The side that sends requests always has both
    // receives, because a ping must not wait for memory.
    const uint32_t of_control = control.waiting_since_ns() == kNever && requester == nullptr ? 1 : 2;
    return of_control + (requester != nullptr ? requester->in_flight() : responder->requests_that_may_come());
  }
  // The same for the side that sends requests; 0 for the other, which needs it only when memory is short.
  uint32_t answers_that_may_come() const { return requester != nullptr ? messages_that_may_come() : 0; }

  SendQueue send_queue;
  Outbounds outbounds;
  ReceiveRing receive_ring;
  Inbounds inbounds;
  Control control;
  Keepalive keepalive;
  std::unique_ptr<Requester> requester;  // One of these two, once it is agreed.
  std::unique_ptr<Responder> responder;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_CONNECTION_PARTS_H_
