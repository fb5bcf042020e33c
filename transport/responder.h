#ifndef HAWSER_TRANSPORT_RESPONDER_H_
#define HAWSER_TRANSPORT_RESPONDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "hawser/transport/environment.h"
#include "hawser/transport/exchange.h"
#include "hawser/transport/exchange_parts.h"
#include "hawser/transport/rendezvous.h"
#include "hawser/transport/timer.h"
#include "hawser/transport/wire.h"

namespace hawser::transport {

// The slots of a connection at the side that answers requests.
// Thread:   on the poller.
// Lifetime: a part of its Connection.
class Responder final : Pull::Owner {
 public:
  Responder(const ExchangeParts& parts, uint32_t slots, RequestHandler& handler);

  // Requests that were not answered yet, and large answers that the peer has not READ yet.
  uint32_t in_flight() const { return in_flight_; }
  // That an honest peer may send once it has all our answers.
  uint32_t requests_that_may_come() const;

  void OnRequest(const ParsedMessage& message, Lease&& buffer, uint32_t length_bytes);
  // See Connection::Respond().
  absl::Status Respond(ExchangeId id, OutgoingMessagePtr& response);
  // See Connection::DetachRequestMemory().
  HeldByHost DetachRequestMemory(ExchangeId id);
  // kCancel and kRelease; about an earlier exchange of the slot they are late, and ignored.
  void OnControlOp(const ControlOp& op);

  // The connection has failed: every handler that runs hears `why`.
  void FailAll(const absl::Status& why);

 private:
  enum class SlotState : uint8_t {
    kFree,
    kWantsMemory,  // A large request was announced, and waits for memory.
    kPulling,      // READs a large request.
    kRunning,      // The handler has it.
    kGranted,      // The peer may READ the large response.
  };

  struct Slot {
    SlotState state = SlotState::kFree;
    bool cancelled = false;  // kRunning: the handler was told. Before: nothing waits any more.
    bool was_short = false;  // kWantsMemory: memory was asked for, and there was none.
    uint32_t generation = 0;
    int64_t deadline_ns = kNever;
    int64_t refuse_ns = kNever;    // kWantsMemory: when to refuse it if there was none.
    IncomingMessagePtr request;    // Until the handler has it.
    Outbound* response = nullptr;  // kGranted.
    absl::Status why_cancelled;
    Pull pull;
  };

  uint16_t IndexOf(const Slot& slot) const { return static_cast<uint16_t>(&slot - slots_.data()); }
  ExchangeId IdOf(const Slot& slot) const { return {IndexOf(slot), slot.generation}; }
  void Run(Slot& slot);
  void Refuse(Slot& slot, const absl::Status& why);
  void Cancel(Slot& slot, const absl::Status& why);
  void EndResponse(Slot& slot);
  void OnDeadlineTimer();
  void OnPullAdmitted(uint16_t slot, Lease sink) override;
  void OnPullShort(uint16_t slot) override { slots_[slot].was_short = true; }
  void OnPullEnded(uint16_t slot, bool complete) override;

  Port& port_;
  Outbounds& outbounds_;
  PullQueue& pulls_;
  RequestHandler& handler_;
  std::vector<Slot> slots_;
  uint32_t in_flight_ = 0;
  Timer deadline_timer_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_RESPONDER_H_
