#ifndef HAWSER_TRANSPORT_CONNECTION_RESPONDER_H_
#define HAWSER_TRANSPORT_CONNECTION_RESPONDER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "hawser/base/check.h"
#include "hawser/base/probe.h"
#include "hawser/base/state_machine.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/credits.h"
#include "hawser/transport/connection/exchange_parts.h"
#include "hawser/transport/connection/receive_ring.h"
#include "hawser/transport/connection/slot_state.h"
#include "hawser/transport/connection/slot_table.h"
#include "hawser/transport/wire/exchange.h"
#include "hawser/transport/wire/wire.h"

namespace hawser::transport {

// The slots of a connection at the side that answers requests.
// Thread:   on the poller.
// Lifetime: a part of its Connection.
class Responder final : Inbound::Owner {
 public:
  // `with_credits`: kFeatureCredits is agreed, and `ring` is that of it. `ends_grants`: kFeatureEndsGrants is
  // agreed.
  Responder(const ExchangeParts& parts, uint32_t slots, bool with_credits, bool ends_grants,
            ReceiveRing& ring, RequestHandler& handler);

  // Requests not answered yet, and large answers that the peer has not READ yet.
  uint32_t in_flight() const { return in_flight_; }
  // Requests not answered yet.
  uint32_t unanswered() const { return in_flight_ - granted_; }
  // Requests that an honest peer may still send after all our responses.
  uint32_t requests_that_may_come() const { return credits_.limit() - unanswered(); }
  CreditGiver& credits() { return credits_; }
  const CreditGiver& credits() const { return credits_; }
  // A Kind::kReturn came.
  void OnReturn();

  // `message` is in `buffer`.
  void OnRequest(const ParsedMessage& message, Lease&& buffer, uint32_t length_bytes);
  // The same for the usual one (usual_in.cc), which is in `whole`.
  void RunUsual(const ParsedMessage& message, IncomingMessagePtr whole);
  // See Connection::Respond(). A response that is READ counts against the peer's host until it is released
  // (Outbounds).
  absl::Status Respond(ExchangeId id, OutgoingMessagePtr& response);
  // See Connection::DetachRequestMemory().
  HeldByHost DetachRequestMemory(ExchangeId id);
  // kCancel and kRelease; about an earlier exchange of the slot they are late, and ignored.
  void OnControlOp(const ControlOp& op);

  // The connection drains: large requests that are not READ completely are refused, now or when their last
  // posted READ has completed. Those that come later are refused when they come. May fail the connection.
  void StopReading();
  // What is in flight waits for the peer: READs that it has to answer, responses that it has to READ and
  // release, and `answers_behind_peer` that are ready. False as well if nothing is in flight.
  bool waits_only_for_peer(uint32_t answers_behind_peer) const;
  // See RequestHandler.
  uint32_t answers_behind_peer() const { return handler_.answers_behind_peer(); }
  // Of those in flight: large responses that the peer has not released.
  uint32_t granted() const { return granted_; }

  // The connection has failed: cancels every running handler with `why`.
  void FailAll(const absl::Status& why);

 private:
  using State = ResponderSlot::State;
  using Event = ResponderSlot::Event;

  struct Slot {
    uint16_t number = 0;
    State state = State::kFree;
    uint32_t generation = 0;
    int64_t deadline_ns = kNever;
    int64_t refuse_ns = kNever;  // kReceiving: when to refuse it if there is no memory.
    Inbound request;
    uint32_t ends_rkey = 0;  // A grant of the request, which is READ completely. 0: none, or not to be ended.
    Outbound* response = nullptr;  // kGranted.
    absl::Status why_stopped;      // kStopping. OK: the connection drains.
  };

  // What a peer that credits_ refuses has done.
  Violation ViolationOfCredits() const { return credits_.agreed() ? Violation::kLimit : Violation::kMessage; }
  ExchangeId IdOf(const Slot& slot) const { return {slot.number, slot.generation}; }
  void Move(Slot& slot, Event event) {
    const State next = Moved<ResponderSlot>(slot.state, event, [&] { return Describe(slot); });
    in_flight_ += next != State::kFree;
    HAWSER_SUBTRACT(in_flight_, slot.state != State::kFree);
    slot.state = next;
  }
  std::string Describe(const Slot& slot) const;
  // A request has come in its slot. Null: the connection has failed.
  [[gnu::always_inline]] Slot* Begin(const Header& header) {
    // A slot that was never used is made by At().
    if (header.slot >= slots_.size()) [[unlikely]]
      return FailForSlot(header.slot, header.generation);
    Slot& slot = slots_.At(header.slot);
    if ((slot.state != State::kFree && slot.state != State::kGranted) ||
        header.generation != slot.generation + 1) [[unlikely]] {
      return FailForSlot(header.slot, header.generation);
    }
    if (const absl::Status status = credits_.OnRequest(header.credits, unanswered() + 1); !status.ok())
        [[unlikely]] {
      FailForCredits(status);
      return nullptr;
    }
    if (!port_.carries_traffic()) [[unlikely]]
      return nullptr;  // Posting the receives for more credits has failed.
    // A new request in the slot means that the client has received and READ the slot's last response.
    if (slot.state == State::kGranted) EndGranted(slot);
    slot.ends_rkey = 0;
    slot.generation = header.generation;
    HAWSER_PROBE(request_received, port_.number(), header.slot, header.generation);
    slot.deadline_ns = header.timeout_us == kNoTimeout
                           ? kNever
                           : port_.poller().now_ns() + int64_t{header.timeout_us} * 1000;
    if (slot.deadline_ns != kNever &&
        (!deadline_timer_.is_set() || slot.deadline_ns < deadline_timer_.when_ns())) [[unlikely]] {
      port_.poller().timers().Set(deadline_timer_, slot.deadline_ns);
    }
    slot.refuse_ns = slot.deadline_ns;
    return &slot;
  }
  // Fails the connection for a request that came in a slot which does not exist, is busy, or has had it.
  // Null.
  Slot* FailForSlot(uint16_t index, uint32_t generation);
  void FailForCredits(const absl::Status& why);
  // A slot is answered that had no request: a bug of ours.
  [[noreturn, gnu::noinline, gnu::cold]] void EndForSlot(uint16_t index) const;
  [[gnu::always_inline]] void Run(Slot& slot, Event how, IncomingMessagePtr request) {
    Move(slot, how);
    handler_.OnRequest(IdOf(slot), std::move(request), slot.deadline_ns);
  }
  // Of a response that is not the usual one, or cannot be sent as such.
  // `header` by value: so that of the usual response needs no memory.
  [[gnu::noinline]] absl::Status RespondOtherwise(Slot& slot, Header header, OutgoingMessagePtr& response);
  void Refuse(Slot& slot, uint64_t body_bytes, Inbounds::Fit fit);
  // OK: because the connection drains.
  void Refuse(Slot& slot, const absl::Status& why);
  // It is kReceiving. Refuses it now, or after its last posted READ.
  void Stop(Slot& slot, absl::Status why);
  // A request that waits for memory is refused before its deadline, so that the caller gets the reason.
  void RefuseInTime(Slot& slot, uint32_t timeout_us);
  void Cancel(Slot& slot, const absl::Status& why);
  void EndGranted(Slot& slot);
  void OnDeadlineTimer();
  void OnRead(uint16_t slot, IncomingMessagePtr message) override;
  void OnStopped(uint16_t slot) override;

  Port& port_;
  Outbounds& outbounds_;
  Inbounds& inbounds_;
  RequestHandler& handler_;
  const bool ends_grants_;
  SlotTable<Slot> slots_;
  CreditGiver credits_;
  uint32_t in_flight_ = 0;
  uint32_t granted_ = 0;  // Of these: answered, with a response that the peer may READ (kGranted).
  Timer deadline_timer_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_RESPONDER_H_
