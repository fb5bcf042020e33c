#include "hawser/transport/connection/control.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/connection/send_queue.h"

namespace hawser::transport {

namespace {

// Offsets in the buffer, behind the control request.
constexpr size_t kAckAt = kControlMessageMax;
constexpr size_t kReturnAt = kAckAt + kHeaderBytes;

}  // namespace

absl::Status Control::Open() {
  absl::StatusOr<Lease> buffer = port_.poller().messages().buffers().Acquire(kReturnAt + kHeaderBytes);
  if (!buffer.ok()) return buffer.status();
  buffer_ = *std::move(buffer);
  Header header;
  header.kind = Kind::kReturn;
  header.slot = kControlSlot;
  EncodeHeader(header, buffer_.data() + kReturnAt);
  return absl::OkStatus();
}

void Control::Ping() {
  ping_ = true;
  Pump();
}

void Control::GoingAway() {
  going_away_ = true;
  Pump();
}

void Control::ReturnCredit() {
  sends_.PushSend(fabric::Sge{buffer_.data() + kReturnAt, kHeaderBytes, buffer_.lkey()}, nullptr);
}

void Control::Pump() {
  if (waiting_since_ns_ != kNever || !port_.carries_traffic()) return;
  uint8_t* const out = buffer_.data();
  Header header;
  header.kind = Kind::kControl;
  header.slot = kControlSlot;
  auto add = [&](const ControlOp& op) {
    EncodeControlOp(op, out + kHeaderBytes + header.entries++ * kControlOpBytes);
  };
  if (std::exchange(going_away_, false)) add({ControlOp::Code::kGoingAway});
  while (header.entries < kControlOpsMax) {
    std::optional<ControlOp> op = source_.NextControlOp();
    if (!op.has_value()) break;
    add(*op);
  }
  // Any other operation is a sign of life, too.
  const bool pings = std::exchange(ping_, false);
  if (pings && header.entries == 0) add({ControlOp::Code::kPing});
  if (header.entries == 0 && !source_.HasCreditsToAdvertise()) return;
  only_advertises_ = header.entries == 0;
  header.generation = ++generation_;
  header.credits = source_.AdvertiseCredits();
  EncodeHeader(header, out);
  const auto length = static_cast<uint32_t>(kHeaderBytes + header.entries * kControlOpBytes);
  // The last messages before a pause may have asked for no completion: a ping frees their memory and their
  // places.
  sends_.PushSend(fabric::Sge{out, length, buffer_.lkey()}, nullptr, pings && sends_.has_uncompleted());
  waiting_since_ns_ = port_.poller().now_ns();
}

void Control::OnControl(const ParsedMessage& message) {
  if (message.header.generation != peer_generation_ + 1) {
    return port_.Fail(Violation::kControl, absl::StrCat("sent control request ", message.header.generation,
                                                        ", expected was ", peer_generation_ + 1));
  }
  peer_generation_ = message.header.generation;
  bool pings = false;
  for (size_t i = 0; i < message.header.entries; ++i) {
    const ControlOp op = DecodeControlOp(message.table + i * kControlOpBytes);
    pings |= op.code == ControlOp::Code::kPing;
    source_.OnControlOp(op);
    if (!port_.carries_traffic()) return;
  }
  Header header;
  header.kind = Kind::kControlAck;
  header.slot = kControlSlot;
  header.generation = peer_generation_;
  header.credits = source_.AdvertiseCredits();
  uint8_t* const out = buffer_.data() + kAckAt;
  EncodeHeader(header, out);
  sends_.PushSend(fabric::Sge{out, kHeaderBytes, buffer_.lkey()}, nullptr, pings && sends_.has_uncompleted());
}

void Control::OnControlAck(const ParsedMessage& message) {
  if (waiting_since_ns_ == kNever || message.header.generation != generation_) {
    return port_.Fail(
        Violation::kControl,
        absl::StrCat("answered control request ", message.header.generation, ", which was not under way"));
  }
  waiting_since_ns_ = kNever;
  Pump();
}

}  // namespace hawser::transport
