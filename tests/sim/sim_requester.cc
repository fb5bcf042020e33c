#include "hawser/tests/sim/sim_requester.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/sim_queue_pair.h"

namespace hawser::sim {
namespace {

using fabric::CompletionStatus;
using fabric::Opcode;

}  // namespace

void SimRequester::Later(int64_t delay_ns, std::function<void(SimRequester&)> event) {
  qp_.Later(delay_ns, [event = std::move(event)](SimQueuePair& qp) { event(qp.requester()); });
}

// ---- Posting

absl::Status SimRequester::Check(const fabric::SendWorkRequest& request) const {
  if (request.sges.empty() || request.sges.size() > fabric::kSgeMax) {
    return absl::InvalidArgumentError(absl::StrCat("a work request of ", request.sges.size(), " sges"));
  }
  uint64_t length_bytes = 0;
  for (const fabric::Sge& sge : request.sges) {
    if (!qp_.regions().Contains(sge)) return qp_.regions().Refusal(sge);
    length_bytes += sge.length;
  }
  if (request.opcode == Opcode::kPush && length_bytes > qp_.push_bytes_max()) {
    return absl::InvalidArgumentError(absl::StrCat("a push of ", length_bytes, " bytes"));
  }
  if (IsAtomic(request.opcode)) {
    if (!qp_.takes_atomics()) return absl::InvalidArgumentError("an atomic, which this fabric does not have");
    return CheckAtomic(request);
  }
  return absl::OkStatus();
}

absl::Status SimRequester::Post(absl::Span<const fabric::SendWorkRequest> requests, uint32_t depth,
                                int64_t not_before_ns) {
  if (posted_ + requests.size() > depth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("post a send: ", posted_, " of ", depth, " places of the send queue are taken"));
  }
  for (const fabric::SendWorkRequest& request : requests) {
    if (absl::Status status = Check(request); !status.ok()) return status;
  }
  RingDoorbell(not_before_ns);
  for (const fabric::SendWorkRequest& request : requests) {
    // A SEND that has them was made of an earlier work request, or of memory that was never set.
    const bool may_end = qp_.network().options().sends_end_grants;
    if (request.opcode == Opcode::kSend && (request.remote_address != 0 || (request.rkey != 0 && !may_end))) {
      qp_.network().Violation(absl::StrCat("a SEND names memory at ", absl::Hex(request.remote_address),
                                           " with rkey ", request.rkey));
    }
    Send& send = sends_.emplace_back();
    send.number = next_number_++;
    send.request = request;
    send.not_before_ns = not_before_ns;
    send.sges.assign(request.sges.begin(), request.sges.end());
    send.length = 0;
    for (const fabric::Sge& sge : send.sges) {
      send.length += sge.length;
      send.guards.push_back(
          IsAnswered(request.opcode)
              ? qp_.network().memory_guard().Poison(sge.address, sge.length, qp_.qp_num())
              : qp_.network().memory_guard().WatchSource(sge.address, sge.length, qp_.qp_num()));
    }
    ++posted_;
  }
  TakeUp();
  return absl::OkStatus();
}

bool SimRequester::PostInline(absl::Span<const uint8_t> message) {
  if (taken_up_ != sends_.size()) return false;
  copied_.emplace_back(message.begin(), message.end());
  return true;
}

void SimRequester::RingDoorbell(int64_t not_before_ns) {
  for (std::vector<uint8_t>& message : std::exchange(copied_, {})) {
    Send& send = sends_.emplace_back();
    send.number = next_number_++;
    send.request = {.opcode = Opcode::kSend};
    send.not_before_ns = not_before_ns;
    send.length = static_cast<uint32_t>(message.size());
    send.copied = std::move(message);
  }
  TakeUp();
}

// ---- Sending

// Fetches work requests until a READ or an atomic would exceed the READ depth.
void SimRequester::TakeUp() {
  if (transmitting_ || !qp_.working() || taken_up_ == sends_.size()) return;
  if (IsAnswered(sends_[taken_up_].request.opcode) && reads_outstanding_ == qp_.read_depth()) return;
  transmitting_ = true;
  const int64_t granted_ns = sends_[taken_up_].not_before_ns;
  Later(std::max(qp_.faults().fetch.Throw(qp_.dice()), granted_ns - qp_.now_ns()), [](SimRequester& self) {
    self.transmitting_ = false;
    self.TransmitHead();
  });
}

void SimRequester::TransmitHead() {
  if (!qp_.working() || taken_up_ == sends_.size()) return;
  Send& send = sends_[taken_up_];
  if (qp_.dice().Chance(qp_.faults().request_fails)) {
    qp_.Trace(absl::StrCat("fails work request ", send.number));
    return FailOldest();
  }
  if (!qp_.network().Reachable(qp_.host(), qp_.peer_host())) {
    if (unreachable_since_ns_ == 0) unreachable_since_ns_ = qp_.now_ns();
    if (qp_.now_ns() - unreachable_since_ns_ >= qp_.faults().retry_ns) {
      return FailOldest();
    }
    transmitting_ = true;
    return Later(SimQueuePair::kLookAgainNs, [](SimRequester& self) {
      self.transmitting_ = false;
      self.TransmitHead();
    });
  }
  unreachable_since_ns_ = 0;
  ++taken_up_;
  send.taken_up = true;
  Transmit(send);
  TakeUp();
}

void SimRequester::Transmit(Send& send) {
  SimPacket packet = {
      .from = qp_.qp_num(),
      .number = send.number,
      .opcode = send.request.opcode,
      .data = {},
      .remote_address = send.request.remote_address,
      .rkey = send.request.rkey,
      .length = send.length,
      .compare_add = send.request.compare_add,
      .swap = send.request.swap,
      .push_follows = taken_up_ < sends_.size() && sends_[taken_up_].request.opcode == Opcode::kPush};
  if (IsAnswered(packet.opcode)) {
    ++reads_outstanding_;
  } else {
    packet.data = send.copied;
    for (const fabric::Sge& sge : send.sges) {
      packet.data.insert(packet.data.end(), sge.address, sge.address + sge.length);
    }
  }
  constexpr absl::string_view kNames[] = {"SEND of ", "WRITE of ", "push of ",
                                          "READ of ", "swap of ",  "add of "};
  std::string what;
  if (qp_.network().history != nullptr) {
    what = absl::StrCat(kNames[static_cast<int>(packet.opcode)], packet.length, " B");
  }
  qp_.ToPeer(std::move(what),
             [packet = std::move(packet)](SimQueuePair& peer) { peer.responder().OnPacket(packet); });
  send.sent_ns = qp_.now_ns();
  WatchAnswers();
}

// A work request without an answer fails after a time, for whatever reason.
void SimRequester::WatchAnswers() {
  if (watching_answers_ || sends_.empty() || !sends_.front().taken_up) return;
  watching_answers_ = true;
  const int64_t due_ns = sends_.front().sent_ns + qp_.faults().retry_ns;
  Later(std::max<int64_t>(due_ns - qp_.now_ns(), 0), [](SimRequester& self) {
    self.watching_answers_ = false;
    self.OnAnswersDue();
  });
}

void SimRequester::OnAnswersDue() {
  if (!qp_.working() || sends_.empty() || !sends_.front().taken_up) return;
  if (qp_.now_ns() - sends_.front().sent_ns >= qp_.faults().retry_ns) {
    const SimQueuePair* const peer = qp_.network().FindQueuePair(qp_.peer());
    if (peer == nullptr || !peer->working() || !qp_.network().Reachable(qp_.host(), qp_.peer_host())) {
      qp_.Trace(absl::StrCat("has no answer to work request ", sends_.front().number));
      return FailOldest();
    }
    // A peer without a fault may be slow, with READs or because it has no receive. It answers, or refuses,
    // later.
    sends_.front().sent_ns = qp_.now_ns();
  }
  WatchAnswers();
}

void SimRequester::OnAnswer(uint64_t number, CompletionStatus status) {
  if (!qp_.working() || sends_.empty() || number < sends_.front().number) return;
  if (status != CompletionStatus::kSuccess) return Fail(number, status);
  Send& send = sends_[number - sends_.front().number];
  send.done = true;
  if (IsAnswered(send.request.opcode)) --reads_outstanding_;
  CompleteInOrder();
  TakeUp();
}

void SimRequester::OnTaken(uint64_t number) {
  if (sends_.empty() || number < sends_.front().number) return;
  for (MemoryGuard::Id& guard : sends_[number - sends_.front().number].guards) {
    qp_.ReleaseGuard(std::exchange(guard, 0), "a SEND");
  }
}

void SimRequester::OnReadData(uint64_t number, size_t offset, const std::vector<uint8_t>& data, bool last) {
  if (!qp_.working() || sends_.empty() || number < sends_.front().number) return;
  const Send& send = sends_[number - sends_.front().number];
  size_t skip = offset, done = 0;
  for (size_t i = 0; i < send.sges.size() && done < data.size(); ++i) {
    const fabric::Sge& sge = send.sges[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const size_t count = std::min(sge.length - skip, data.size() - done);
    qp_.network().memory_guard().FabricWrites(sge.address + skip, data.data() + done, count, send.guards[i]);
    done += count;
    skip = 0;
  }
  if (last) OnAnswer(number, CompletionStatus::kSuccess);
}

void SimRequester::CompleteInOrder() {
  while (!sends_.empty() && sends_.front().done) {
    Send& send = sends_.front();
    Retire(send, send.request.signaled);
    if (send.request.signaled) {
      PushSend(send.number, send.request.wr_id, send.request.opcode, CompletionStatus::kSuccess,
               qp_.faults().completion.Throw(qp_.dice()));
      for (Unproved& earlier : unproved_) earlier.will_be_proved = true;
    }
    sends_.pop_front();
    --taken_up_;
  }
}

// It has completed, or is about to: until the application has polled that, it keeps its place.
void SimRequester::Retire(Send& send, bool will_be_proved) {
  if (!send.copied.empty()) return;
  unproved_.push_back({send.number, send.request.wr_id, will_be_proved, std::move(send.guards)});
}

void SimRequester::PushSend(uint64_t number, uint64_t wr_id, Opcode opcode, CompletionStatus status,
                            int64_t delay_ns) {
  last_send_completion_ns_ = std::max(last_send_completion_ns_, qp_.now_ns() + delay_ns);
  qp_.completion_queue().PushAt(last_send_completion_ns_, {{wr_id, qp_.qp_num(), status, opcode, 0},
                                                           [this, number] { Proved(number); }});
}

void SimRequester::Proved(uint64_t number) {
  while (!unproved_.empty() && unproved_.front().number <= number) {
    for (const MemoryGuard::Id guard : unproved_.front().guards)
      qp_.ReleaseGuard(guard, "a work request of the send queue");
    unproved_.pop_front();
    --posted_;
  }
}

// ---- Ending

void SimRequester::Fail(uint64_t number, CompletionStatus status) {
  if (!qp_.working()) return;
  // Answers arrive in order, so the work requests before a refused one have their answers.
  while (!sends_.empty() && sends_.front().number < number) {
    Send& send = sends_.front();
    Retire(send, true);
    if (send.copied.empty()) {
      PushSend(send.number, send.request.wr_id, send.request.opcode, CompletionStatus::kFlushed, 0);
    }
    sends_.pop_front();
  }
  if (!sends_.empty()) {
    Send& send = sends_.front();
    Retire(send, true);
    if (send.copied.empty()) {
      PushSend(send.number, send.request.wr_id, send.request.opcode, status,
               qp_.faults().completion.Throw(qp_.dice()));
    } else {
      qp_.CopiedSendFailed(status);
    }
    sends_.pop_front();
  }
  qp_.EnterError();
}

void SimRequester::FailOldest() {
  if (!sends_.empty()) return Fail(sends_.front().number, CompletionStatus::kTransportRetryExceeded);
  qp_.EnterError();
}

void SimRequester::Flush() {
  // An unsignaled send that has succeeded completes as flushed, too, because no later completion covers it.
  for (Unproved& send : unproved_) {
    if (std::exchange(send.will_be_proved, true)) continue;
    PushSend(send.number, send.wr_id, Opcode::kSend, CompletionStatus::kFlushed,
             qp_.faults().flush.Throw(qp_.dice()));
  }
  for (Send& send : sends_) {
    Retire(send, true);
    if (!send.copied.empty()) continue;
    PushSend(send.number, send.request.wr_id, send.request.opcode, CompletionStatus::kFlushed,
             qp_.faults().flush.Throw(qp_.dice()));
  }
  sends_.clear();
  copied_.clear();
  taken_up_ = 0;
}

}  // namespace hawser::sim
