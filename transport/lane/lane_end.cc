#include "hawser/transport/lane/lane_end.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::transport {
namespace {

// After Disconnect(), for the flush of what is posted; then for what ForceFlush() has begun. As of a
// connection.
constexpr absl::Duration kFlushTimeout = absl::Seconds(5);
constexpr absl::Duration kForcedFlushTimeout = absl::Seconds(30);

// Messages that wait for a place. An honest peer has kLaneRequestsMax requests unanswered.
constexpr size_t kWaitingMax = 4 * kLaneRequestsMax;

}  // namespace

LaneEnd::LaneEnd(Poller& poller) : poller_(poller), flush_timer_([this] { OnFlushTimer(); }) {
  for (uint32_t buffer = 2 * kLaneReceives; buffer-- > kLaneReceives;) free_.push_back(buffer);
}

LaneEnd::~LaneEnd() { poller_.timers().Cancel(flush_timer_); }

void LaneEnd::set_peer(const SocketAddress& address) {
  peer_ = absl::StrCat(poller_.fabric().scheme(), "://", address.ToString());
}

absl::Status LaneEnd::Create(fabric::QueuePairOptions options) {
  poller_.AssertHeld();
  absl::StatusOr<Lease> memory =
      poller_.messages().buffers().Acquire(size_t{2 * kLaneReceives} * kLaneMessageMax);
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  options.receive_depth = kLaneReceives;
  send_depth_ = options.send_depth;
  absl::StatusOr<std::unique_ptr<fabric::QueuePair>> queue_pair =
      poller_.fabric().CreateQueuePair(poller_.completion_queue(), options, *this);
  if (!queue_pair.ok()) return queue_pair.status();
  queue_pair_ = *std::move(queue_pair);
  for (uint32_t buffer = 0; buffer < kLaneReceives; ++buffer) {
    if (absl::Status posted = PostReceive(buffer); !posted.ok()) return posted;
  }
  return absl::OkStatus();
}

absl::Status LaneEnd::PostReceive(uint32_t buffer) {
  fabric::ReceiveWorkRequest request;
  request.wr_id = WorkId{index(), WorkId::kReceive, buffer}.Encode();
  request.buffer = {BufferAt(buffer), kLaneMessageMax, memory_.lkey()};
  absl::Status posted = queue_pair_->PostReceive({&request, 1});
  if (posted.ok()) ++receives_;
  return posted;
}

void LaneEnd::BecomeReady() {
  if (state_ != State::kConnecting) return;
  state_ = State::kReady;
  poller_.MarkForFlush(this);
}

// ---- Posting

void LaneEnd::SendMessage(const LaneMessage& message) {
  if (ending()) return;
  if (to_send_.size() >= kWaitingMax) {
    return End(absl::ResourceExhaustedError(
        absl::StrCat("the lane of ", peer_, " takes no messages: ", to_send_.size(), " wait for it")));
  }
  to_send_.push_back(Encode(message));
  poller_.MarkForFlush(this);
}

void LaneEnd::PostMessages() {
  while (!to_send_.empty() && !free_.empty()) {
    const std::string& message = to_send_.front();
    const uint32_t buffer = free_.back();
    std::copy(message.begin(), message.end(), BufferAt(buffer));
    const fabric::Sge sge{BufferAt(buffer), static_cast<uint32_t>(message.size()), memory_.lkey()};
    fabric::SendWorkRequest request;
    request.opcode = fabric::Opcode::kSend;
    request.signaled = true;
    request.sges = {&sge, 1};
    uint64_t last = 0;
    if (absl::Status posted = PostWork({&request, 1}, last); !posted.ok()) return EndUnposted(posted);
    free_.pop_back();
    in_flight_.emplace_back(last, buffer);
    to_send_.pop_front();
  }
}

absl::Status LaneEnd::PostWork(absl::Span<fabric::SendWorkRequest> requests, uint64_t& last) {
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].wr_id = WorkId{index(), WorkId::kSendQueue, static_cast<uint32_t>(posted_ + i)}.Encode();
  }
  last = posted_ + requests.size() - 1;
  absl::Status posted = queue_pair_->PostSend(requests);
  if (posted.ok()) posted_ += requests.size();
  return posted;
}

void LaneEnd::EndUnposted(const absl::Status& why) {
  End(absl::UnavailableError(absl::StrCat("the lane to ", peer_, " was lost: ", why.message())));
}

void LaneEnd::RevokeGrant(uint32_t rkey, uint32_t number) {
  ++revocations_;
  queue_pair_->Revoke(rkey, WorkId{index(), WorkId::kRevocation, number}.Encode());
}

// ---- Completions

void LaneEnd::OnCompletion(const WorkId& id, const fabric::Completion& completion) {
  if (queue_pair_ == nullptr) return;
  switch (id.kind) {
    case WorkId::kReceive:
      OnReceive(id.number, completion);
      break;
    case WorkId::kRevocation:
      HAWSER_SUBTRACT(revocations_, 1);
      OnRevoked(id.number);
      break;
    default:
      OnSend(id.number, completion);
  }
  if (ending()) poller_.MarkForFlush(this);
}

void LaneEnd::OnReceive(uint32_t buffer, const fabric::Completion& completion) {
  HAWSER_SUBTRACT(receives_, 1);
  if (completion.status != fabric::CompletionStatus::kSuccess) {
    // OnDisconnected() says what has caused a flush, or a work request that was sent does.
    if (completion.status == fabric::CompletionStatus::kFlushed) return;
    return End(absl::UnavailableError(
        absl::StrCat("the lane of ", peer_, " was lost: a receive failed: ", Describe(completion.status))));
  }
  last_heard_ns_ = poller_.now_ns();
  if (ending()) return;
  // Decoded before the receive is posted again: then the peer may change these bytes.
  const absl::StatusOr<LaneMessage> message = DecodeLaneMessage({BufferAt(buffer), completion.byte_len});
  if (!message.ok()) return EndBecauseBroken(message.status().message());
  BecomeReady();
  if (absl::Status posted = PostReceive(buffer); !posted.ok()) {
    return End(absl::UnavailableError(absl::StrCat("the lane of ", peer_, " was lost: ", posted.message())));
  }
  OnMessage(*message);
}

void LaneEnd::OnSend(uint32_t number, const fabric::Completion& completion) {
  // The numbers in wr_ids have 32 bits. Few work requests are in flight.
  const uint64_t at = posted_ - static_cast<uint32_t>(static_cast<uint32_t>(posted_) - number);
  if (at < done_ || at >= posted_) return;
  done_ = at + 1;
  while (!in_flight_.empty() && in_flight_.front().first < done_) {
    free_.push_back(in_flight_.front().second);
    in_flight_.pop_front();
  }
  if (completion.status == fabric::CompletionStatus::kSuccess) {
    last_heard_ns_ = poller_.now_ns();
    OnSent(done_);
    if (!ending()) poller_.MarkForFlush(this);
    return;
  }
  OnSendFailed(at, completion.status);
  End(absl::UnavailableError(absl::StrCat(
      "the lane to ", peer_, " was lost: a work request failed: ", Describe(completion.status))));
}

void LaneEnd::Flush() {
  if (state_ == State::kReady) {
    PostMessages();
    if (state_ == State::kReady) OnFlush();
    if (state_ == State::kReady && !to_send_.empty()) PostMessages();
  }
  if (state_ == State::kEnding && flushed()) BecomeGone();
}

// ---- Its end

void LaneEnd::OnConnectFailed(const absl::Status& why, absl::string_view private_data) {
  absl::Status reason = private_data.empty() ? WithoutReason(why) : DecodeRejection(private_data);
  End(absl::Status(reason.code(), absl::StrCat("a lane to ", peer_,
                                               " was not opened: ", absl::string_view(reason.message()))));
}

void LaneEnd::EndBecauseBroken(absl::string_view what) {
  const std::string text = absl::StrCat("the peer ", peer_, " broke the protocol of lanes: ", what);
  OnViolation(Violation::kMessage, text);
  End(absl::UnavailableError(text));
}

void LaneEnd::OnDisconnected(const absl::Status& why) {
  if (const std::optional<Violation> violation = ViolationOf(why)) OnViolation(*violation, why.message());
  End(absl::UnavailableError(
      absl::StrCat("the lane to ", peer_, " was lost: ", absl::string_view(why.message()))));
}

void LaneEnd::End(const absl::Status& why) {
  poller_.AssertHeld();
  if (ending()) return;
  why_ = absl::Status(why.code(), why.message());
  state_ = State::kEnding;
  if (queue_pair_ != nullptr) queue_pair_->DisconnectBecause(why_.message());
  to_send_.clear();
  OnEnding();
  poller_.timers().Set(flush_timer_, After(poller_.environment().NowNs(), kFlushTimeout));
  poller_.MarkForFlush(this);
}

void LaneEnd::OnFlushTimer() {
  if (!std::exchange(forced_, true) && queue_pair_ != nullptr && queue_pair_->ForceFlush()) {
    return poller_.timers().Set(flush_timer_, After(poller_.now_ns(), kForcedFlushTimeout));
  }
  // From here on nothing that was posted completes, and the fabric uses none of this memory.
  queue_pair_.reset();
  done_ = posted_;
  receives_ = revocations_ = 0;
  poller_.MarkForFlush(this);
}

void LaneEnd::BecomeGone() {
  state_ = State::kGone;
  poller_.timers().Cancel(flush_timer_);
  queue_pair_.reset();
  OnGone();
  poller_.MarkClosed(this);
}

void LaneEnd::Disconnect() {
  if (queue_pair_ != nullptr) queue_pair_->Disconnect();
}

}  // namespace hawser::transport
