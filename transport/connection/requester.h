#ifndef HAWSER_TRANSPORT_CONNECTION_REQUESTER_H_
#define HAWSER_TRANSPORT_CONNECTION_REQUESTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/base/probe.h"
#include "hawser/base/state_machine.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/credits.h"
#include "hawser/transport/connection/exchange_parts.h"
#include "hawser/transport/connection/slot_state.h"
#include "hawser/transport/connection/slot_table.h"
#include "hawser/transport/wire/exchange.h"
#include "hawser/transport/wire/wire.h"

namespace hawser::transport {

// The slots of a connection at the side that sends requests. A request takes a slot and its response frees
// it, even if nothing waits for the response: only the response proves that the peer no longer uses the
// request's memory.
// Thread:   on the poller.
// Lifetime: a part of its Connection.
class Requester final : Inbound::Owner {
 public:
  // `with_credits`: kFeatureCredits is agreed.
  Requester(const ExchangeParts& parts, uint32_t slots, bool with_credits);

  // There is a free slot, and a credit for a request.
  bool CanSend() const { return in_flight() < credits_.limit(); }
  uint32_t in_flight() const { return static_cast<uint32_t>(slots_.size() - free_.size()); }

  // See Connection::SendRequest() and Cancel().
  absl::StatusOr<ExchangeId> Send(OutgoingMessagePtr& request, int64_t deadline_ns, ResponseHandler& handler);
  void Cancel(ExchangeId id);

  // Header::credits of a message of the peer. May fail the connection. Calls Port::OnCredits() if there are
  // more.
  void OnCredits(uint16_t given) {
    if (!credits_.knows(given)) [[unlikely]]
      TakeCredits(given);
  }
  // Returns what was not needed since the last call.
  void ReturnCredits();

  // `message` is in `buffer`.
  void OnResponse(const ParsedMessage& message, Lease&& buffer, uint32_t length_bytes);
  // The same for the usual one (usual_in.cc), which is in `whole`: frees its slot, and returns the handler to
  // which it is to be delivered. Null: to none.
  ResponseHandler* EndUsual(const ParsedMessage& message, const IncomingMessage& whole);

  // Takes the next cancellation or release to tell the peer; nullopt: none is left.
  std::optional<ControlOp> NextControlOp();

  // See Connection::DescribeSlots().
  std::string DescribeSlots() const;

  // The connection has failed: every handler that still waits ends with `why`, but for those whose landing
  // the fabric may still write to.
  void FailAll(const absl::Status& why);
  // Whether there are such handlers.
  bool has_landings() const;
  // After FailAll(): the queue pair is destroyed, and they end, too.
  void EndLandings();

 private:
  using State = RequesterSlot::State;
  using Event = RequesterSlot::Event;

  struct Slot {
    uint16_t number = 0;
    State state = State::kFree;
    bool peer_knows_deadline = false;
    bool owes_cancel = false;  // The peer must be notified that nothing waits.
    // The peer must be notified that its large response was READ. A new request does that, too.
    bool owes_release = false;
    uint32_t generation = 0;
    uint32_t given_up_bytes = 0;
    int64_t deadline_ns = kNever;
    int64_t sent_ns = 0;
    ResponseHandler* handler = nullptr;  // Null: it was called.
    // The name of a request that ended before its response.
    absl::string_view given_up() const { return {given_up_name, given_up_bytes}; }
    const char* given_up_name = nullptr;
    // Kept also while a large response is READ: if the connection is lost before that completes, the request
    // may have to be resent. Released early if memory is short (OnNoMemory()). At most one of the two:
    // `copied_request` is used by nothing else. Null: released.
    Outbound* request = nullptr;
    OutgoingMessagePtr copied_request;
    Inbound response;
    // Not OK: the call ends with this, and `handler` waits until its landing is the program's again, which is
    // bounded by `deadline_ns` now.
    absl::Status landing_end;
  };

  void Move(Slot& slot, Event event) {
    slot.state = Moved<RequesterSlot>(slot.state, event, [&] { return Describe(slot); });
  }
  std::string Describe(const Slot& slot) const;
  // The slot that waits for it. Null: nothing wants it any more, or the connection has failed.
  [[gnu::always_inline]] Slot* FindWaiting(const ParsedMessage& message) {
    const Header& header = message.header;
    Slot* const slot = slots_.Find(header.slot);
    if (slot == nullptr || (slot->state != State::kWaiting && slot->state != State::kAbandoned) ||
        slot->generation != header.generation) [[unlikely]] {
      FailUnexpected(header.slot, header.generation);
      return nullptr;
    }
    HAWSER_PROBE(response_received, port_.number(), header.slot, header.generation, slot->handler);
    slot->owes_cancel = false;
    if (slot->state == State::kWaiting) [[likely]]
      return slot;
    if (message.remote_bytes != 0) OweRelease(*slot);
    Free(*slot, Event::kAnswered);
    return nullptr;
  }
  void FailUnexpected(uint16_t slot, uint32_t generation);
  void Refuse(Slot& slot, uint64_t inline_bytes, uint64_t remote_bytes, Inbounds::Fit fit);
  // See Outbounds::Post(). `header` by value: so that of the usual message needs no memory.
  [[gnu::noinline]] Outbound* PostOther(Header header, OutgoingMessagePtr& request, absl::Status& why) {
    return outbounds_.Post(header, request, why);
  }
  void TakeCredits(uint16_t given);
  void GiveUp(Slot& slot, const absl::Status& why);
  // The same while the response is READ into the landing.
  [[gnu::noinline, gnu::cold]] void GiveUpLanding(Slot& slot, const absl::Status& why);
  // `how`: the event that frees the slot, kAnswered or kRead.
  void Deliver(Slot& slot, Event how, absl::StatusOr<IncomingMessagePtr>&& response);
  void OfferRequestBack(Slot& slot, ResponseHandler& handler, const IncomingMessage& error);
  void Free(Slot& slot, Event how);
  // The request, as one that may have a Taker; null: it was released.
  Outbound* KeepRequest(Slot& slot);
  void ReleaseRequest(Slot& slot);
  void OweRelease(Slot& slot);
  void OnDeadlineTimer();
  void OnRead(uint16_t slot, IncomingMessagePtr message) override;
  void OnStopped(uint16_t slot) override;
  void OnNoMemory(uint16_t slot) override;
  const Landing* landing(uint16_t slot) const override;

  Port& port_;
  SendQueue& sends_;
  Outbounds& outbounds_;
  Inbounds& inbounds_;
  Control& control_;
  CreditTaker credits_;
  SlotTable<Slot> slots_;
  // The last freed slot is used first: its memory is warm, and the others stay untouched.
  std::vector<uint16_t> free_;
  uint32_t owing_ = 0;  // Slots with owes_cancel or owes_release, at least.
  Timer deadline_timer_;
  Timer release_timer_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_REQUESTER_H_
