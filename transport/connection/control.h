#ifndef HAWSER_TRANSPORT_CONNECTION_CONTROL_H_
#define HAWSER_TRANSPORT_CONNECTION_CONTROL_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/wire/wire.h"

namespace hawser::transport {

class Port;
class SendQueue;

// Control exchanges: one request at a time in each direction, on a slot kept for them, so they pass when all
// others are busy. Operations are collected while one is in flight, and go with the next.
// Thread:   on the poller.
class Control {
 public:
  class Source {
   public:
    // The next operation to send; nullopt: none.
    virtual std::optional<ControlOp> NextControlOp() = 0;
    // An operation from the peer. May fail the connection.
    virtual void OnControlOp(const ControlOp& op) = 0;
    // The peer does not know all its credits.
    virtual bool HasCreditsToAdvertise() const = 0;
    // Header::credits of a message that is sent now.
    virtual uint16_t AdvertiseCredits() = 0;

   protected:
    ~Source() = default;
  };

  Control(Port& port, SendQueue& sends, Source& source) : port_(port), sends_(sends), source_(source) {}

  // Takes the memory of its messages from the pool.
  absl::Status Open();

  void Ping();
  void GoingAway();
  // Sends a Kind::kReturn.
  void ReturnCredit();
  // Sends the source's operations and credits, and what was asked for above, unless a control exchange is in
  // flight; then after that one.
  void Pump();

  void OnControl(const ParsedMessage& message);
  void OnControlAck(const ParsedMessage& message);

  // Control messages of the peer so far, modulo 2^32.
  uint32_t received() const { return peer_generation_ + generation_ - (waiting_since_ns_ != kNever ? 1 : 0); }

  // When the exchange in flight was sent; kNever if none is.
  int64_t waiting_since_ns() const { return waiting_since_ns_; }
  // Whether the exchange in flight has no operation: it advertises credits, whatever the peer is doing.
  bool only_advertises() const { return only_advertises_; }

 private:
  Port& port_;
  SendQueue& sends_;
  Source& source_;
  Lease buffer_;  // The request, the answer to the peer's, and the return: all returns are the same.
  uint32_t generation_ = 0;
  uint32_t peer_generation_ = 0;
  bool ping_ = false;
  bool going_away_ = false;
  bool only_advertises_ = false;  // The exchange in flight has no operation.
  int64_t waiting_since_ns_ = kNever;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_CONTROL_H_
