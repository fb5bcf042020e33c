#include "hawser/transport/control.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/environment.h"
#include "hawser/transport/port.h"
#include "hawser/transport/send_queue.h"

namespace hawser::transport {

absl::Status Control::Open() {
  waiting_since_ns_ = kNever;
  absl::StatusOr<Lease> buffer =
      port_.poller().messages().buffers().Acquire(kControlMessageMax + kHeaderBytes);
  if (!buffer.ok()) return buffer.status();
  buffer_ = *std::move(buffer);
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
  // Any other operation is as good a sign of life.
  if (std::exchange(ping_, false) && header.entries == 0) add({ControlOp::Code::kPing});
  if (header.entries == 0) return;
  header.generation = ++generation_;
  EncodeHeader(header, out);
  const auto length = static_cast<uint32_t>(kHeaderBytes + header.entries * kControlOpBytes);
  sends_.PushSend(fabric::Sge{out, length, buffer_.lkey()}, nullptr);
  waiting_since_ns_ = port_.poller().now_ns();
}

void Control::OnControl(const ParsedMessage& message) {
  if (message.header.generation != peer_generation_ + 1) {
    return port_.Fail(Violation::kControl, absl::StrCat("sent control request ", message.header.generation,
                                                        ", expected was ", peer_generation_ + 1));
  }
  peer_generation_ = message.header.generation;
  for (size_t i = 0; i < message.header.entries; ++i) {
    source_.OnControlOp(DecodeControlOp(message.table + i * kControlOpBytes));
    if (!port_.carries_traffic()) return;
  }
  Header header;
  header.kind = Kind::kControlAck;
  header.slot = kControlSlot;
  header.generation = peer_generation_;
  uint8_t* const out = buffer_.data() + kControlMessageMax;
  EncodeHeader(header, out);
  sends_.PushSend(fabric::Sge{out, kHeaderBytes, buffer_.lkey()}, nullptr);
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
