// How the usual message comes, a request or its response: it is small, came whole, and the connection is in
// use. Its bytes are copied into the object of its message. A fabric in software offers them from memory of
// its own, and no receive completes; otherwise their receive is posted again as it is. Each exception is one
// test, behind which Connection::OnMessage() receives any message.

#include <utility>

#include "hawser/transport/connection/connection.h"

namespace hawser::transport {

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
[[gnu::always_inline]] inline bool Connection::TakeUsual(const uint8_t* data, uint32_t length_bytes,
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
  if (message.size() > kCopiedMax || !poller_.MayTakeSend()) [[unlikely]]
    return false;
  if (!TakeUsual(message.data(), static_cast<uint32_t>(message.size()), kNoReceive)) [[unlikely]]
    return false;
  poller_.MarkForFlush(this);
  poller_.OnSendTaken();
  return true;
}

}  // namespace hawser::transport
