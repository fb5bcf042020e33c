// How the usual message leaves, a request or its response: it is one segment, fits one SEND, and the fabric
// copies it. Then its memory is the caller's again at once: it has no Outbound, no place in the send queue
// and no completion. Each exception is one test that leads to the end of these functions, where
// Outbounds::Post() sends any message.

#include <algorithm>
#include <utility>

#include "hawser/base/probe.h"
#include "hawser/transport/connection/connection.h"

namespace hawser::transport {
namespace {

// A deadline beyond what the field holds, 71 minutes, is not sent.
uint32_t TimeoutUs(int64_t deadline_ns, int64_t now_ns) {
  if (deadline_ns == kNever) return kNoTimeout;
  const int64_t left_us = std::max<int64_t>(0, deadline_ns - now_ns) / 1000 + 1;
  return static_cast<uint32_t>(std::min<int64_t>(left_us, kNoTimeout));
}

}  // namespace

// Not if the application has attached something: that ends only when a completion shows that the peer has the
// message.
[[gnu::always_inline]] inline bool Outbounds::PostUsual(Header& header, OutgoingMessage& message) {
  const uint32_t body_bytes = message.FinishUsual();
  const size_t envelope_bytes = message.envelope().size();
  const size_t prefix_bytes = PrefixBytes(1, envelope_bytes);
  if (body_bytes == 0 || prefix_bytes + body_bytes > port_.agreed().receive_buffer_bytes ||
      body_bytes > bytes_max()) [[unlikely]] {
    return false;
  }
  header.envelope_words = static_cast<uint8_t>(envelope_bytes / 8);
  header.entries = 1;
  uint8_t* const prefix = message.body() - prefix_bytes;
  EncodeUsualPrefix(header, body_bytes, prefix);
  if (!sends_.PostInline({prefix, prefix_bytes + body_bytes})) return false;
  CountWhole(message);
  return true;
}

[[gnu::always_inline]] inline absl::StatusOr<ExchangeId> Requester::Send(OutgoingMessagePtr& request,
                                                                         int64_t deadline_ns,
                                                                         ResponseHandler& handler) {
  if (!CanSend()) return absl::ResourceExhaustedError("every slot is busy");
  Slot& slot = slots_.At(free_.back());
  Header header;
  header.kind = Kind::kRequest;
  header.slot = free_.back();
  header.generation = slot.generation + 1;
  header.timeout_us = TimeoutUs(deadline_ns, port_.poller().now_ns());
  header.credits = credits_.OnRequest(in_flight() + 1);
  if (outbounds_.PostUsual(header, *request)) [[likely]] {
    slot.copied_request = std::move(request);
  } else {
    absl::Status why;
    Outbound* const posted = PostOther(header, request, why);
    if (!why.ok()) return why;
    slot.request = posted;
  }
  free_.pop_back();
  Move(slot, Event::kSend);
  ++slot.generation;
  slot.owes_release = false;
  slot.deadline_ns = deadline_ns;
  slot.sent_ns = port_.poller().now_ns();
  slot.peer_knows_deadline = header.timeout_us != kNoTimeout;
  slot.handler = &handler;
  HAWSER_PROBE(request_sent, port_.number(), header.slot, header.generation, &handler);
  if (deadline_ns != kNever && (!deadline_timer_.is_set() || deadline_ns < deadline_timer_.when_ns()))
      [[unlikely]] {
    port_.poller().timers().Set(deadline_timer_, deadline_ns);
  }
  return ExchangeId{header.slot, header.generation};
}

absl::StatusOr<ExchangeId> Connection::SendRequest(OutgoingMessagePtr& request, int64_t deadline_ns,
                                                   ResponseHandler& handler) {
  poller_.AssertHeld();
  if (state_ != State::kReady || parts_.requester == nullptr) [[unlikely]]
    return WhyNotReady();
  return parts_.requester->Send(request, deadline_ns, handler);
}

[[gnu::always_inline]] inline absl::Status Responder::Respond(ExchangeId id, OutgoingMessagePtr& response) {
  Slot* const found = slots_.Find(id.slot);
  if (found == nullptr) [[unlikely]]
    EndForSlot(id.slot);
  Slot& slot = *found;
  const bool answerable =
      slot.state == State::kRunning || slot.state == State::kCancelled || slot.state == State::kRefused;
  if (slot.generation != id.generation || !answerable) return absl::OkStatus();
  Header header;
  header.kind = Kind::kResponse;
  header.slot = id.slot;
  header.generation = id.generation;
  header.credits = credits_.given();
  if (slot.ends_rkey != 0 || !outbounds_.PostUsual(header, *response)) [[unlikely]]
    return RespondOtherwise(slot, header, response);
  credits_.OnAdvertised();
  HAWSER_PROBE(response_sent, port_.number(), id.slot, id.generation);
  inbounds_.Release(slot.request);
  response.reset();
  // No drain waits for the end of this exchange: on a connection that drains each send asks for a completion,
  // so none is copied.
  Move(slot, Event::kAnswer);
  return absl::OkStatus();
}

absl::Status Connection::Respond(ExchangeId id, OutgoingMessagePtr& response) {
  poller_.AssertHeld();
  if (!carries_traffic() || parts_.responder == nullptr) return absl::OkStatus();
  return parts_.responder->Respond(id, response);
}

}  // namespace hawser::transport
