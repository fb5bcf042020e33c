#include "hawser/transport/connection/requester.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/poller/called_out.h"

namespace hawser::transport {
namespace {

// How long the peer keeps a large response that this side has READ, unless a new request in its slot releases
// it first.
constexpr absl::Duration kReleaseAfter = absl::Milliseconds(1);

// How long READs into a landing may take after the end of their call: as long as a READ may stand still at
// all. Without pings only an answer is waited for.
absl::Duration LandingLimit(const ConnectionOptions& options) {
  const bool pings = options.keepalive_interval != absl::InfiniteDuration();
  return (pings ? options.keepalive_interval : absl::ZeroDuration()) + options.keepalive_timeout;
}

// Whether to wait once more, though the limit has passed, by `late`. If this process looks so late, the READs
// may have completed unseen. If the peer is busy, Keepalive bounds how long.
bool MayStillLand(const Port& port, absl::Duration late) {
  return late > port.options().keepalive_timeout / 4 || !port.peer_is_busy().empty();
}

std::string NotLanded(absl::string_view call, absl::Duration limit) {
  return absl::StrCat("answers, but READs into the memory of ", call, " have not completed within ",
                      absl::FormatDuration(limit), " of its end");
}

}  // namespace

Requester::Requester(const ExchangeParts& parts, uint32_t slots, bool with_credits)
    : port_(parts.port),
      sends_(parts.sends),
      outbounds_(parts.outbounds),
      inbounds_(parts.inbounds),
      control_(parts.control),
      credits_(slots, with_credits),
      slots_(slots),
      deadline_timer_([this] { OnDeadlineTimer(); }),
      release_timer_([this] { control_.Pump(); }) {
  free_.reserve(slots);
  for (uint32_t i = slots; i > 0; --i) free_.push_back(static_cast<uint16_t>(i - 1));
}

std::string Requester::Describe(const Slot& slot) const {
  return absl::StrCat("slot ", slot.number, " of ", slots_.size(), ", connection to ", port_.peer(), ",");
}

void Requester::TakeCredits(uint16_t given) {
  if (absl::Status status = credits_.Take(given); !status.ok()) {
    return port_.Fail(Violation::kMessage, status.message(), status.code());
  }
  port_.OnCredits();
}

void Requester::ReturnCredits() {
  for (uint32_t count = credits_.TakeOffUnused(in_flight()); count > 0; --count) control_.ReturnCredit();
}

void Requester::Cancel(ExchangeId id) {
  Slot* const found = slots_.Find(id.slot);
  if (found == nullptr || found->generation != id.generation || found->handler == nullptr) return;
  Slot& slot = *found;
  if (!slot.landing_end.ok()) return;  // It was given up before.
  slot.owes_cancel = slot.state == State::kWaiting;
  if (slot.owes_cancel) ++owing_;
  GiveUp(slot, absl::CancelledError("cancelled by the caller"));
  control_.Pump();
}

void Requester::OnResponse(const ParsedMessage& message, Lease&& buffer, uint32_t length_bytes) {
  Slot* const slot = FindWaiting(message);
  if (slot == nullptr) return;
  IncomingMessagePtr whole;
  const Inbounds::Fit fit =
      inbounds_.Receive(slot->response, message, std::move(buffer), length_bytes, *this, whole);
  if (fit == Inbounds::Fit::kWhole) return Deliver(*slot, Event::kAnswered, std::move(whole));
  if (fit == Inbounds::Fit::kAnnounced) {
    Move(*slot, Event::kAnnounced);
    return inbounds_.Fetch(slot->response, message);
  }
  Refuse(*slot, message.inline_bytes, message.remote_bytes, fit);
}

void Requester::Refuse(Slot& slot, uint64_t inline_bytes, uint64_t remote_bytes, Inbounds::Fit fit) {
  const uint64_t body_bytes = inline_bytes + remote_bytes;
  if (remote_bytes != 0) OweRelease(slot);
  Deliver(slot, Event::kAnswered,
          absl::ResourceExhaustedError(
              fit == Inbounds::Fit::kTooLarge
                  ? absl::StrCat("the response has ", body_bytes, " bytes, this side takes at most ",
                                 port_.options().message_bytes_max, " (ConnectionOptions::message_bytes_max)")
                  : absl::StrCat("the response has ", body_bytes,
                                 " bytes, more than the whole memory pool here can hold; raise "
                                 "BufferPoolOptions::limit_bytes")));
}

void Requester::FailUnexpected(uint16_t slot, uint32_t generation) {
  port_.Fail(Violation::kSlot, absl::StrCat("answered exchange ", generation, " of slot ", slot,
                                            ", which is not waiting for an answer"));
}

void Requester::OnNoMemory(uint16_t index) {
  Slot& slot = slots_.At(index);
  // A large request may own the very memory that its response needs.
  if (slot.request != nullptr && slot.request->has_grants()) ReleaseRequest(slot);
}

void Requester::OnRead(uint16_t index, IncomingMessagePtr message) {
  Slot& slot = slots_.At(index);
  OweRelease(slot);
  Deliver(slot, Event::kRead, std::move(message));
}

void Requester::OnStopped(uint16_t index) {
  Slot& slot = slots_.At(index);
  OweRelease(slot);
  ResponseHandler* const handler = std::exchange(slot.handler, nullptr);
  const absl::Status why = std::exchange(slot.landing_end, absl::OkStatus());
  Free(slot, Event::kStopped);
  if (handler != nullptr) handler->OnResponse(why);  // It has waited for its landing.
}

const Landing* Requester::landing(uint16_t slot) const { return slots_.Find(slot)->handler->landing(); }

void Requester::GiveUp(Slot& slot, const absl::Status& why) {
  if (slot.request != nullptr) slot.request->OnGivenUp();
  if (slot.response.lands()) [[unlikely]]
    return GiveUpLanding(slot, why);
  ResponseHandler* const handler = std::exchange(slot.handler, nullptr);
  const absl::string_view name = handler->name();
  slot.given_up_name = name.data();
  slot.given_up_bytes = static_cast<uint32_t>(name.size());
  // A waiting slot continues to wait for the response. A receiving slot ends once no READ is outstanding.
  const bool receives = slot.state == State::kReceiving;
  Move(slot, Event::kGiveUp);
  if (receives && inbounds_.Stop(slot.response)) {
    OweRelease(slot);
    Free(slot, Event::kStopped);
  }
  handler->OnResponse(why);
}

// Posts no more READs, and waits for those that are posted. Only the end of the queue pair revokes a READ,
// and it would fail the other calls.
void Requester::GiveUpLanding(Slot& slot, const absl::Status& why) {
  slot.landing_end = why;
  slot.deadline_ns = After(port_.poller().now_ns(), LandingLimit(port_.options()));
  Move(slot, Event::kGiveUp);
  if (inbounds_.Stop(slot.response)) return OnStopped(slot.number);
  if (slot.deadline_ns != kNever &&
      (!deadline_timer_.is_set() || slot.deadline_ns < deadline_timer_.when_ns())) {
    port_.poller().timers().Set(deadline_timer_, slot.deadline_ns);
  }
}

void Requester::Deliver(Slot& slot, Event how, absl::StatusOr<IncomingMessagePtr>&& response) {
  ResponseHandler* const handler = std::exchange(slot.handler, nullptr);
  if (response.ok() && MayReturnRequest((*response)->envelope())) {
    OfferRequestBack(slot, *handler, **response);
  }
  // The slot is free before the handler runs, because the handler may send the next request in it. Callers
  // that wait for a slot are notified first.
  Free(slot, how);
  handler->OnResponse(std::move(response));
}

// The response implies that the peer has the request, but the fabric may use its memory a little longer.
void Requester::OfferRequestBack(Slot& slot, ResponseHandler& handler, const IncomingMessage& error) {
  const bool has_request = slot.request != nullptr || slot.copied_request != nullptr;
  if (!has_request || !handler.WantsRequestBackAfter(error)) return;
  Outbound& request = *KeepRequest(slot);
  request.ReturnTo(&handler);
  if (!request.is_sent_from()) return;
  // A completion shows when the fabric has stopped. On a connection that is going away no other request may
  // ask for one.
  sends_.SignalAll();
  control_.Ping();
}

Outbound* Requester::KeepRequest(Slot& slot) {
  if (slot.copied_request != nullptr) slot.request = &outbounds_.Keep(std::move(slot.copied_request));
  return slot.request;
}

void Requester::ReleaseRequest(Slot& slot) {
  slot.copied_request.reset();
  if (slot.request == nullptr) return;
  std::exchange(slot.request, nullptr)->Release();
}

void Requester::Free(Slot& slot, Event how) {
  ReleaseRequest(slot);
  inbounds_.Release(slot.response);
  Move(slot, how);
  free_.push_back(slot.number);
  port_.OnExchangeEnded();
}

void Requester::OweRelease(Slot& slot) {
  slot.owes_release = true;
  ++owing_;
  if (!release_timer_.is_set()) {
    port_.poller().timers().Set(release_timer_, After(port_.poller().now_ns(), kReleaseAfter));
  }
}

std::optional<ControlOp> Requester::NextControlOp() {
  if (owing_ == 0) return std::nullopt;
  for (Slot& slot : slots_) {
    if (std::exchange(slot.owes_cancel, false)) {
      return ControlOp{ControlOp::Code::kCancel, slot.number, slot.generation};
    }
    if (std::exchange(slot.owes_release, false)) {
      return ControlOp{ControlOp::Code::kRelease, slot.number, slot.generation};
    }
  }
  owing_ = 0;
  return std::nullopt;
}

std::string Requester::DescribeSlots() const {
  size_t given_up = 0;
  const Slot* oldest = nullptr;
  for (const Slot& slot : slots_) {
    if (slot.state == State::kFree) continue;
    if (slot.handler == nullptr) ++given_up;
    if (oldest == nullptr || slot.sent_ns < oldest->sent_ns) oldest = &slot;
  }
  std::string text = free_.empty() ? absl::StrCat("all ", slots_.size(), " slots are busy")
                                   : absl::StrCat(in_flight(), " of ", slots_.size(), " slots are busy");
  if (credits_.limit() < slots_.size()) {
    absl::StrAppend(&text, ", the peer has given credits for ", credits_.limit());
  }
  if (oldest == nullptr) return text;
  if (given_up != 0) {
    absl::StrAppend(&text, ", ", given_up,
                    " with calls that were given up and that the peer has not answered");
  }
  const absl::Duration age = absl::Nanoseconds(port_.poller().now_ns() - oldest->sent_ns);
  absl::StrAppend(&text, "; the oldest is ",
                  oldest->handler != nullptr ? oldest->handler->name() : oldest->given_up(), ", sent ",
                  RoughDuration(age), " ago");
  return text;
}

void Requester::OnDeadlineTimer() {
  const int64_t now_ns = port_.poller().now_ns();
  int64_t next_ns = kNever;
  for (Slot& slot : slots_) {
    if (slot.handler == nullptr || slot.deadline_ns == kNever) continue;
    if (!slot.landing_end.ok() && now_ns >= slot.deadline_ns) [[unlikely]] {
      const absl::Duration limit = LandingLimit(port_.options());
      if (!MayStillLand(port_, absl::Nanoseconds(now_ns - slot.deadline_ns)))
        return port_.Fail(absl::StatusCode::kUnavailable, NotLanded(slot.handler->name(), limit));
      slot.deadline_ns = After(now_ns, limit);
    }
    if (slot.deadline_ns <= now_ns) {
      if (slot.state == State::kWaiting && !slot.peer_knows_deadline) {
        slot.owes_cancel = true;
        ++owing_;
      }
      // Memory that is still being mapped, or for which other messages wait first, is too late, but it is not
      // exhausted.
      const bool exhausted = slot.response.was_short();
      const char* const what = slot.state == State::kWaiting ? "no answer came before the deadline"
                               : exhausted
                                   ? "no memory was free for the large answer before the deadline; raise "
                                     "BufferPoolOptions::limit_bytes or release replies"
                                   : "the deadline passed while the large answer was being READ";
      const absl::StatusCode code =
          exhausted ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kDeadlineExceeded;
      GiveUp(slot,
             absl::Status(code, absl::StrCat(what, " (peer ", port_.peer(), ")", port_.DescribeSilence(),
                                             port_.poller().WhyLate(slot.deadline_ns))));
    } else {
      next_ns = std::min(next_ns, slot.deadline_ns);
    }
  }
  // A handler may have sent a request with an earlier deadline.
  if (!deadline_timer_.is_set() || next_ns < deadline_timer_.when_ns()) {
    port_.poller().timers().Set(deadline_timer_, next_ns);
  }
  if (owing_ != 0) control_.Pump();
}

void Requester::FailAll(const absl::Status& why) {
  for (Timer* timer : {&deadline_timer_, &release_timer_}) port_.poller().timers().Cancel(*timer);
  for (Slot& slot : slots_) {
    ResponseHandler* const handler = slot.handler;
    const bool given_up = !slot.landing_end.ok();
    if (Outbound* const request = KeepRequest(slot); request != nullptr) {
      if (handler != nullptr && !given_up && handler->WantsRequestBack()) request->ReturnTo(handler);
      std::exchange(slot.request, nullptr)->ReleaseAtFailure();
    }
    if (handler != nullptr && slot.response.lands()) [[unlikely]] {
      if (!given_up) slot.landing_end = why;
      continue;
    }
    slot.handler = nullptr;
    if (handler != nullptr) handler->OnResponse(why);
  }
}

bool Requester::has_landings() const {
  for (const Slot& slot : slots_) {
    if (slot.handler != nullptr && !slot.landing_end.ok()) return true;
  }
  return false;
}

void Requester::EndLandings() {
  for (Slot& slot : slots_) {
    ResponseHandler* const handler = std::exchange(slot.handler, nullptr);
    if (handler != nullptr) handler->OnResponse(std::exchange(slot.landing_end, absl::OkStatus()));
  }
}

}  // namespace hawser::transport
