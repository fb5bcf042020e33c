// How the usual message comes, a request or its response: it is small, came whole, and the connection is in
// use. Its bytes are copied into the object of its message. A fabric in software offers them from memory of
// its own, and no receive completes; otherwise their receive is posted again as it is. Each exception is one
// test, behind which Connection::OnMessage() receives any message.

#include <string.h>

#include <utility>

#include "hawser/transport/connection/connection.h"

namespace hawser::transport {
namespace {

constexpr uint32_t kNoReceive = ~0u;

// Few messages that are not the usual one have, so few are copied in vain.
inline bool HasOneSegment(absl::Span<const uint8_t> message) {
  return message.size() >= kHeaderBytes && LoadLittle16(message.data() + 12) == 1;
}

// A request or a response that announces what the push behind it brings. False: it is something else, or is
// wrong, and completes a receive.
[[gnu::noinline]] bool TakeAnnounced(Port& port, ConnectionParts& parts, absl::Span<const uint8_t> message) {
  if (!port.carries_traffic() || !port.queue_pair().offers_push() || message.size() < kHeaderBytes)
    return false;
  const bool is_request = message[0] == static_cast<uint8_t>(Kind::kRequest);
  if (is_request ? parts.responder == nullptr
                 : parts.requester == nullptr || message[0] != static_cast<uint8_t>(Kind::kResponse)) {
    return false;
  }
  Shortage why;
  Lease buffer = port.poller().messages().buffers().TryAcquire(message.size(), why);
  if (!buffer) return false;
  memcpy(buffer.data(), message.data(), message.size());
  ParsedMessage parsed;
  if (!Parse(buffer.data(), message.size(), parsed).ok() || parsed.remote_bytes == 0) return false;
  parts.keepalive.OnPeerActivity();
  const auto length_bytes = static_cast<uint32_t>(message.size());
  if (is_request) {
    parts.responder->OnRequest(parsed, std::move(buffer), length_bytes);
    return true;
  }
  parts.requester->OnCredits(parsed.header.credits);
  if (port.carries_traffic()) parts.requester->OnResponse(parsed, std::move(buffer), length_bytes);
  return true;
}

}  // namespace

[[gnu::always_inline]] inline ResponseHandler* Requester::EndUsual(const ParsedMessage& message,
                                                                   const IncomingMessage& whole) {
  Slot* const found = FindWaiting(message);
  if (found == nullptr) return nullptr;
  Slot& slot = *found;
  if (message.inline_bytes > port_.options().message_bytes_max) [[unlikely]] {
    Refuse(slot, message.inline_bytes, 0, Inbounds::Fit::kTooLarge);
    return nullptr;
  }
  port_.poller().received().whole.Add();
  ResponseHandler* const handler = std::exchange(slot.handler, nullptr);
  if (MayReturnRequest(message.envelope)) [[unlikely]]
    OfferRequestBack(slot, *handler, whole);
  // The response was not announced, so no memory counts for it.
  if (slot.copied_request != nullptr) [[likely]] {
    slot.copied_request.reset();
  } else {
    ReleaseRequest(slot);
  }
  Move(slot, Event::kAnswered);
  free_.push_back(slot.number);
  return handler;
}

[[gnu::always_inline]] inline void Responder::RunUsual(const ParsedMessage& message,
                                                       IncomingMessagePtr whole) {
  Slot* const slot = Begin(message.header);
  if (slot == nullptr) [[unlikely]]
    return;
  if (message.inline_bytes > port_.options().message_bytes_max) [[unlikely]]
    return Refuse(*slot, message.inline_bytes, Inbounds::Fit::kTooLarge);
  port_.poller().received().whole.Add();
  Run(*slot, Event::kWhole, std::move(whole));
}

// Copies it first: a device, or a peer through one, cannot change what is checked then. For other messages
// the copy is in vain, but to find that out before would cost each usual message a second look.
[[gnu::always_inline]] inline bool Connection::TakeUsual(const uint8_t* data, size_t length_bytes,
                                                         uint32_t receive) {
  if (!has_received_ || !carries_traffic()) [[unlikely]]
    return false;
  IncomingMessagePtr incoming = poller_.NewIncoming();
  ParsedMessage message;
  if (!ParseSmall(incoming->Copy(data, length_bytes), length_bytes, message)) [[unlikely]]
    return false;
  const bool is_request = message.header.kind == Kind::kRequest;
  if (is_request ? parts_.responder == nullptr : parts_.requester == nullptr) [[unlikely]]
    return false;
  if (receive != kNoReceive) parts_.receive_ring.PutBack(receive);
  parts_.keepalive.OnPeerActivity();
  incoming->SetCopied(message.envelope, message.inline_segments, static_cast<uint32_t>(message.inline_bytes));
  if (is_request) {
    parts_.responder->RunUsual(message, std::move(incoming));
    return true;
  }
  parts_.requester->OnCredits(message.header.credits);
  if (!carries_traffic()) [[unlikely]]
    return true;
  ResponseHandler* const handler = parts_.requester->EndUsual(message, *incoming);
  if (handler == nullptr) [[unlikely]]
    return true;
  // The slot is free before the handler runs, because the handler may send the next request in it. Callers
  // that wait for a slot are notified first.
  OnExchangeEnded();
  handler->OnResponse(std::move(incoming));
  return true;
}

bool Connection::TakeFromRing(uint32_t receive, uint32_t length_bytes) {
  const uint8_t* const data = parts_.receive_ring.Peek(receive);
  return data != nullptr && TakeUsual(data, length_bytes, receive);
}

// Inside Poll(), so it ends nothing but what any message may end, and posts at the end of the turn or of a
// chunk.
bool Connection::TakeSend(absl::Span<const uint8_t> message) {
  if (message.size() > kCopiedMax || !poller_.MayTakeSend() || !has_received_) [[unlikely]]
    return false;
  if (!(HasOneSegment(message) && TakeUsual(message.data(), message.size(), kNoReceive)) &&
      !TakeAnnounced(*this, parts_, message)) [[unlikely]]
    return false;
  poller_.MarkForFlush(this);
  poller_.OnSendTaken();
  return true;
}

}  // namespace hawser::transport
