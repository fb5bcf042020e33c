#include "hawser/transport/connection/responder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"

namespace hawser::transport {
namespace {

// The responder refuses a request that finds no memory a tenth of its time before its deadline, but at most
// this long before, so that the caller gets the reason before it times out.
constexpr int64_t kRefusalMaxNs = 50'000'000;

}  // namespace

Responder::Responder(const ExchangeParts& parts, uint32_t slots, bool with_credits, bool ends_grants,
                     ReceiveRing& ring, RequestHandler& handler)
    : port_(parts.port),
      outbounds_(parts.outbounds),
      inbounds_(parts.inbounds),
      handler_(handler),
      ends_grants_(ends_grants),
      slots_(slots),
      credits_(ring, slots, with_credits),
      deadline_timer_([this] { OnDeadlineTimer(); }) {}

std::string Responder::Describe(const Slot& slot) const {
  return absl::StrCat("slot ", slot.number, " of ", slots_.size(), ", connection to ", port_.peer(), ",");
}

Responder::Slot* Responder::FailForSlot(uint16_t index, uint32_t generation) {
  if (index >= slots_.size()) {
    port_.Fail(Violation::kSlot, absl::StrCat("used slot ", index, " of ", slots_.size()));
    return nullptr;
  }
  const Slot& slot = slots_.At(index);
  port_.Fail(Violation::kSlot, slot.state != State::kFree && slot.state != State::kGranted
                                   ? absl::StrCat("sent a request in slot ", index, ", which is busy")
                                   : absl::StrCat("sent generation ", generation, " of slot ", index,
                                                  ", expected was ", slot.generation + 1));
  return nullptr;
}

void Responder::EndForSlot(uint16_t index) const {
  hawser::internal::CheckFailed(
      __FILE__, __LINE__, "found != nullptr",
      absl::StrCat("slot ", index, " of ", slots_.size(), ", connection to ", port_.peer()));
}

void Responder::FailForCredits(const absl::Status& why) {
  port_.Fail(ViolationOfCredits(), why.message(), why.code());
}

void Responder::OnRequest(const ParsedMessage& message, Lease&& buffer, uint32_t length_bytes) {
  const Header& header = message.header;
  Slot* const begun = Begin(header);
  if (begun == nullptr) return;
  Slot& slot = *begun;
  IncomingMessagePtr whole;
  const Inbounds::Fit fit =
      inbounds_.Receive(slot.request, message, std::move(buffer), length_bytes, *this, whole);
  if (fit == Inbounds::Fit::kWhole) return Run(slot, Event::kWhole, std::move(whole));
  if (fit == Inbounds::Fit::kAnnounced) {
    Move(slot, Event::kAnnounced);
    if (port_.state() == ConnectionState::State::kDraining) [[unlikely]]
      return Stop(slot, absl::OkStatus());
    inbounds_.Fetch(slot.request, message);
    // If not, there was no room for one of its READs: the connection has failed, and every handler was
    // notified.
    if (port_.carries_traffic()) RefuseInTime(slot, header.timeout_us);
    return;
  }
  Refuse(slot, message.inline_bytes + message.remote_bytes, fit);
}

void Responder::Refuse(Slot& slot, uint64_t body_bytes, Inbounds::Fit fit) {
  if (fit == Inbounds::Fit::kTooLarge) {
    return Refuse(slot, absl::InvalidArgumentError(absl::StrCat(
                            "the request has ", body_bytes, " bytes, the server takes at most ",
                            port_.options().message_bytes_max, " (ConnectionOptions::message_bytes_max)")));
  }
  Refuse(slot,
         absl::ResourceExhaustedError(absl::StrCat("the request has ", body_bytes,
                                                   " bytes, more than the server's whole memory pool "
                                                   "can hold; raise BufferPoolOptions::limit_bytes there")));
}

void Responder::RefuseInTime(Slot& slot, uint32_t timeout_us) {
  if (slot.request.state() != Inbound::State::kWaiting || slot.deadline_ns == kNever) return;
  slot.refuse_ns -= std::min(int64_t{timeout_us} * 100, kRefusalMaxNs);
  if (slot.refuse_ns < deadline_timer_.when_ns()) {
    port_.poller().timers().Set(deadline_timer_, slot.refuse_ns);
  }
}

void Responder::OnRead(uint16_t index, IncomingMessagePtr message) {
  Slot& slot = slots_.At(index);
  if (ends_grants_) slot.ends_rkey = slot.request.first_rkey();
  Run(slot, Event::kRead, std::move(message));
}

void Responder::OnStopped(uint16_t index) {
  Slot& slot = slots_.At(index);
  Refuse(slot, slot.why_stopped);
}

void Responder::Refuse(Slot& slot, const absl::Status& why) {
  inbounds_.Release(slot.request);
  Move(slot, Event::kRefuse);
  why.ok() ? handler_.OnRefusedByDrain(IdOf(slot)) : handler_.OnBadRequest(IdOf(slot), why);
}

void Responder::Stop(Slot& slot, absl::Status why) {
  slot.why_stopped = std::move(why);
  inbounds_.Stop(slot.request) ? Refuse(slot, slot.why_stopped) : Move(slot, Event::kStop);
}

void Responder::StopReading() {
  for (Slot& slot : slots_) {
    if (slot.state == State::kReceiving) Stop(slot, absl::OkStatus());
    if (!port_.carries_traffic()) return;
  }
}

bool Responder::waits_only_for_peer(uint32_t answers_behind_peer) const {
  uint32_t others = 0;
  for (const Slot& slot : slots_) {
    others += slot.state != State::kFree && slot.state != State::kStopping && slot.state != State::kGranted;
  }
  return in_flight_ != 0 && others == answers_behind_peer;
}

absl::Status Responder::RespondOtherwise(Slot& slot, Header header, OutgoingMessagePtr& response) {
  absl::Status why;
  Outbound* const posted = outbounds_.Post(header, response, why, slot.ends_rkey);
  if (!port_.carries_traffic()) return absl::OkStatus();
  if (!why.ok()) {
    // What was granted of it is being revoked; the answer in its place releases the request.
    if (posted != nullptr && posted->IsFrom(slot.request)) posted->Keep(inbounds_.Detach(slot.request));
    return why;
  }
  credits_.OnAdvertised();
  HAWSER_PROBE(response_sent, port_.number(), header.slot, header.generation);
  if (posted->has_grants() && posted->IsFrom(slot.request)) {
    posted->Keep(inbounds_.Detach(slot.request));  // The peer holds it until it has READ and released it.
  } else {
    // From here on the application owns the memory of the request that its handler still uses.
    inbounds_.Release(slot.request);
  }
  if (!posted->has_grants()) {
    posted->Release();
    Move(slot, Event::kAnswer);
    port_.OnExchangeEnded();
  } else {
    slot.response = posted;
    Move(slot, Event::kGrant);
    ++granted_;
    port_.OnBulkTransfer();
  }
  return absl::OkStatus();
}

HeldByHost Responder::DetachRequestMemory(ExchangeId id) {
  Slot* const found = slots_.Find(id.slot);
  if (found == nullptr) EndForSlot(id.slot);
  Slot& slot = *found;
  if (slot.generation != id.generation || (slot.state != State::kRunning && slot.state != State::kCancelled))
    return {};
  return inbounds_.Detach(slot.request);
}

void Responder::OnReturn() {
  if (const absl::Status status = credits_.OnReturn(unanswered()); !status.ok()) {
    port_.Fail(ViolationOfCredits(), status.message(), status.code());
  }
}

void Responder::EndGranted(Slot& slot) {
  std::exchange(slot.response, nullptr)->Release();
  Move(slot, Event::kRelease);
  HAWSER_SUBTRACT(granted_, 1);
}

void Responder::Cancel(Slot& slot, const absl::Status& why) {
  if (slot.state == State::kRunning) {
    Move(slot, Event::kCancel);
    handler_.OnCancel(IdOf(slot), why);
  } else if (slot.state == State::kReceiving) {
    Stop(slot,
         slot.request.was_short() && absl::IsDeadlineExceeded(why)
             ? absl::ResourceExhaustedError("no memory was free for the large request before its deadline; "
                                            "raise BufferPoolOptions::limit_bytes of the server")
             : why);
  }
}

void Responder::OnControlOp(const ControlOp& op) {
  if (op.slot >= slots_.size()) {
    return port_.Fail(Violation::kControl,
                      absl::StrCat("named slot ", op.slot, " of ", slots_.size(), " in a control message"));
  }
  Slot* const found = slots_.Find(op.slot);
  if (found == nullptr || found->generation != op.generation) return;
  Slot& slot = *found;
  if (op.code == ControlOp::Code::kCancel) {
    Cancel(slot, absl::CancelledError("cancelled by the caller"));
  } else if (slot.state == State::kGranted) {
    EndGranted(slot);
    port_.OnExchangeEnded();
  }
}

void Responder::OnDeadlineTimer() {
  const int64_t now_ns = port_.poller().now_ns();
  int64_t next_ns = kNever;
  for (Slot& slot : slots_) {
    const bool is_waited_for = slot.state == State::kReceiving || slot.state == State::kRunning;
    if (!is_waited_for || slot.deadline_ns == kNever) continue;
    const int64_t due_ns = slot.request.was_short() ? slot.refuse_ns : slot.deadline_ns;
    if (due_ns <= now_ns) {
      slot.deadline_ns = kNever;
      Cancel(slot, absl::DeadlineExceededError("the caller's deadline has passed"));
    } else {
      next_ns = std::min(next_ns, due_ns);
    }
  }
  if (!deadline_timer_.is_set() || next_ns < deadline_timer_.when_ns()) {
    port_.poller().timers().Set(deadline_timer_, next_ns);
  }
}

void Responder::FailAll(const absl::Status& why) {
  port_.poller().timers().Cancel(deadline_timer_);
  for (Slot& slot : slots_) {
    if (slot.response != nullptr) std::exchange(slot.response, nullptr)->ReleaseAtFailure();
    if (slot.state != State::kRunning) continue;
    Move(slot, Event::kCancel);
    handler_.OnCancel(IdOf(slot), why);
  }
}

}  // namespace hawser::transport
