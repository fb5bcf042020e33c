#include "hawser/rpc/serving/error_sender.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/rpc/wire/message_metadata.h"

namespace hawser::internal {
namespace {

// How much of an error's text is sent if there is no memory for all of it.
constexpr size_t kShortMessage = 256;

}  // namespace

// The error response of a connection that uses the pool's reserve. It is notified when that response has been
// sent and acknowledged.
class ErrorSender::ReserveUse {
 public:
  explicit ReserveUse(ErrorSender& sender) : sender_(&sender) {}

  bool under_way() const { return under_way_; }
  // For the message to own. `self` points to this.
  static std::shared_ptr<const void> Start(const std::shared_ptr<ReserveUse>& self) {
    self->under_way_ = true;
    return std::shared_ptr<const void>(self.get(), [self](const void*) { self->OnEnded(); });
  }
  void SenderGone() { sender_ = nullptr; }

 private:
  // This runs inside the handling of a completion.
  void OnEnded() {
    under_way_ = false;
    if (sender_ == nullptr || sender_->owed_.empty()) return;
    sender_->poller_.timers().Set(sender_->owed_timer_, sender_->poller_.now_ns());
  }

  ErrorSender* sender_;
  bool under_way_ = false;
};

ErrorSender::ErrorSender(transport::Poller& poller)
    : poller_(poller),
      reserve_use_(std::make_shared<ReserveUse>(*this)),
      owed_timer_([this] { SendOwedOrWait(); }) {}

ErrorSender::~ErrorSender() { reserve_use_->SenderGone(); }

uint32_t ErrorSender::behind_peer() const {
  return reserve_use_->under_way() ? static_cast<uint32_t>(owed_.size()) : 0;
}

void ErrorSender::OnClosed() {
  connection_ = nullptr;
  owed_.clear();
  StopWaiting();
  poller_.timers().Cancel(owed_timer_);
}

void ErrorSender::Send(transport::ExchangeId id, const absl::Status& status, Handler handler,
                       const Metadata* metadata) {
  poller_.AssertHeld();
  // At the pool's limit each error would take a buffer that a receive ring waits for, and no answer is sent
  // before the ring is filled again. Errors then use the reserve, one at a time.
  if (owed_.empty() && poller_.messages().buffers().HasRoomForSlab()) {
    absl::Status sent;
    // Whole; without the metadata; then as short as it gets.
    for (int form = 0; form < 3; ++form) {
      sent =
          SendIn(poller_.messages().NewOutgoing(), id, form < 2 ? status : Shortened(status, kShortMessage),
                 handler, form < 1 ? metadata : nullptr);
      if (sent.ok() || connection_ == nullptr) return;
    }
    if (!absl::IsResourceExhausted(sent)) {
      // Otherwise the client would wait until its deadline. Closing ends its calls in flight at once.
      return connection_->Close(absl::ResourceExhaustedError(
          absl::StrCat("not even an error could be sent to ", connection_->peer(), ": ",
                       absl::string_view(sent.message()))));
    }
  }
  owed_.push_back({id, Shortened(status, kShortMessage), handler});
  SendOwedOrWait();
}

absl::Status ErrorSender::SendIn(transport::OutgoingMessagePtr message, transport::ExchangeId id,
                                 const absl::Status& status, Handler handler, const Metadata* metadata) {
  EncodeStatus(status, *message, handler == Handler::kRefused);
  const uint16_t segment = metadata == nullptr ? 0 : AddMetadata(*metadata, *message);
  message->SetEnvelope(Encode(ResponseEnvelope{status.code(), handler == Handler::kNotRun, segment}));
  return message->status().ok() ? connection_->Respond(id, message) : message->status();
}

bool ErrorSender::SendOwed(transport::Shortage& why) {
  why = transport::Shortage::kAtLimit;
  while (!owed_.empty() && !reserve_use_->under_way()) {
    const Owed next = owed_.front();  // A copy: to respond may close the connection, and clear owed_.
    transport::OutgoingMessagePtr message = poller_.messages().NewReserved();
    message->Own(ReserveUse::Start(reserve_use_));
    absl::Status sent = SendIn(std::move(message), next.id, next.status, next.handler);
    if (connection_ == nullptr) return true;
    if (absl::IsResourceExhausted(sent)) {
      poller_.timers().Cancel(owed_timer_);  // The destruction of the unsent message has set it.
      return false;
    }
    if (!sent.ok()) {
      connection_->Close(
          absl::Status(sent.code(), absl::StrCat("not even an error could be sent to ", connection_->peer(),
                                                 ": ", absl::string_view(sent.message()))));
      return true;
    }
    owed_.erase(owed_.begin());
    if (owed_.empty()) owed_.shrink_to_fit();  // Most connections never owe any.
  }
  return true;  // The other errors follow when the one in flight has ended.
}

void ErrorSender::SendOwedOrWait() {
  transport::Shortage why;
  if (!SendOwed(why)) poller_.memory_queue().Wait(*this, transport::kReservedBufferBytes);
}

}  // namespace hawser::internal
