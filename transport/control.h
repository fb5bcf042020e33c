#ifndef HAWSER_TRANSPORT_CONTROL_H_
#define HAWSER_TRANSPORT_CONTROL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "hawser/transport/buffer_pool.h"
#include "hawser/transport/wire.h"

namespace hawser::transport {

class Connection;

// Control exchanges: one request at a time in each direction, on a slot kept for them, so they pass when all
// others are busy. What is to be said is collected while one is under way and goes with the next.
// Thread:   on the poller.
class Control {
 public:
  explicit Control(Connection& connection) : connection_(connection) {}

  // Takes the memory of both its messages from the pool.
  absl::Status Open();

  void Ping();
  void GoingAway();
  // Sends what the slots want to say (see Requester::NextControlOp()) and what was asked for above, unless a
  // control exchange is under way; then it follows that.
  void Pump();

  void OnControl(const ParsedMessage& message);
  void OnControlAck(const ParsedMessage& message);

  // When the exchange that is under way was sent; kNever if none is.
  int64_t waiting_since_ns() const { return waiting_since_ns_; }

 private:
  Connection& connection_;
  Lease buffer_;  // The request, then the answer to the peer's.
  uint32_t generation_ = 0;
  uint32_t peer_generation_ = 0;
  bool ping_ = false;
  bool going_away_ = false;
  int64_t waiting_since_ns_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONTROL_H_
