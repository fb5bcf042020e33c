#include "hawser/tests/sim/sim_responder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/sim_queue_pair.h"

namespace hawser::sim {
namespace {

using fabric::CompletionStatus;
using fabric::Opcode;

fabric::QueuePair::Access RightFor(Opcode opcode) {
  using Access = fabric::QueuePair::Access;
  return opcode == Opcode::kWrite  ? Access::kWrite
         : opcode == Opcode::kRead ? Access::kRead
                                   : Access::kAtomic;
}

// Between the addresses of one grant and those of the next.
constexpr uint64_t kGapBytes = 4096;

}  // namespace

SimResponder::SimResponder(SimQueuePair& queue_pair)
    : qp_(queue_pair), last_rkey_(queue_pair.qp_num() << 16) {}

void SimResponder::Later(int64_t delay_ns, std::function<void(SimResponder&)> event) {
  qp_.Later(delay_ns, [event = std::move(event)](SimQueuePair& qp) { event(qp.responder()); });
}

// ---- Receives, grants and pushes

absl::Status SimResponder::PostReceive(absl::Span<const fabric::ReceiveWorkRequest> requests,
                                       uint32_t depth) {
  if (receives_out_ + requests.size() > depth) {
    return absl::ResourceExhaustedError(absl::StrCat("post a receive: ", receives_out_, " of ", depth,
                                                     " places of the receive queue are taken"));
  }
  for (const fabric::ReceiveWorkRequest& request : requests) {
    if (!qp_.regions().Contains(request.buffer)) return qp_.regions().Refusal(request.buffer);
  }
  for (const fabric::ReceiveWorkRequest& request : requests) {
    receives_.push_back(
        {request.wr_id, request.buffer,
         qp_.network().memory_guard().Poison(request.buffer.address, request.buffer.length, qp_.qp_num()),
         ++receives_posted_});
    ++receives_out_;
  }
  RetrySoon();
  return absl::OkStatus();
}

// A SEND that waits may find a receive.
void SimResponder::RetrySoon() {
  if (!qp_.sends_wait() || !rnr_waiting_ || receives_.empty()) return;
  rnr_waiting_ = false;
  Later(qp_.faults().fetch.Throw(qp_.dice()), [](SimResponder& self) { self.ExecuteInbound(); });
}

size_t SimResponder::WithdrawReceives(absl::Span<uint64_t> wr_ids) {
  size_t count = 0;
  for (; count < wr_ids.size() && !receives_.empty(); ++count) {
    wr_ids[count] = receives_.back().wr_id;
    qp_.ReleaseGuard(receives_.back().guard, "a withdrawn receive");
    receives_.pop_back();
    --receives_out_;
  }
  return count;
}

absl::StatusOr<fabric::Granted> SimResponder::Grant(const fabric::Sge& range, Access access,
                                                    size_t grants_max) {
  if (absl::Status status = CheckGrant(range, access, qp_.atomics()); !status.ok()) return status;
  if (grants_.size() >= grants_max) {
    return absl::ResourceExhaustedError(absl::StrCat("grant: ", grants_.size(), " are out already"));
  }
  const uint32_t rkey = ++last_rkey_;
  // The peer may WRITE into memory granted for that, and its owner may change what may be READ again and
  // again, so only memory granted for one READ is watched.
  const MemoryGuard::Id guard = access == Access::kRead ? qp_.network().memory_guard().WatchSource(
                                                              range.address, range.length, qp_.qp_num())
                                                        : 0;
  // Grants become valid in the order of posts, as on a send queue.
  granted_ns_ = std::max(granted_ns_, qp_.now_ns() + qp_.faults().fetch.Throw(qp_.dice()));
  next_address_ += -next_address_ % sizeof(uint64_t);  // As the memory of a grant for atomics.
  const uint64_t address = next_address_;
  next_address_ += range.length + kGapBytes;
  grants_[rkey] = {range, address, access, granted_ns_, guard};
  return fabric::Granted{address, rkey};
}

void SimResponder::Revoke(uint32_t rkey, uint64_t wr_id) {
  const auto grant = grants_.find(rkey);
  if (grant == grants_.end())
    qp_.network().Violation(absl::StrCat("rkey ", rkey, " is revoked, which is not granted"));
  const int64_t in_force_ns =
      grant == grants_.end() ? qp_.now_ns() : std::max(qp_.now_ns(), grant->second.from_ns);
  Later(in_force_ns - qp_.now_ns() + qp_.faults().revocation.Throw(qp_.dice()),
        [rkey, wr_id](SimResponder& self) {
          if (auto it = self.grants_.find(rkey); it != self.grants_.end()) {
            self.qp_.ReleaseGuard(it->second.guard, "a grant");
            self.grants_.erase(it);
          }
          const bool flushed = self.qp_.in_error();
          self.qp_.completion_queue().PushAt(
              self.qp_.now_ns() + self.qp_.faults().completion.Throw(self.qp_.dice()),
              {{wr_id, self.qp_.qp_num(), flushed ? CompletionStatus::kFlushed : CompletionStatus::kSuccess,
                Opcode::kRevoke, 0},
               nullptr});
        });
}

bool SimResponder::TakePush(uint64_t wr_id, const fabric::Sge& sink, uint64_t remote_address, uint32_t rkey) {
  if (!qp_.regions().Contains(sink)) return false;
  const auto pushed = std::find_if(pushes_.begin(), pushes_.end(), [&](const Pushed& one) {
    return one.told_in == qp_.completion_queue().polls() && one.packet.remote_address == remote_address &&
           one.packet.rkey == rkey && one.packet.length == sink.length;
  });
  if (pushed == pushes_.end()) return false;
  MemoryGuard& guards = qp_.network().memory_guard();
  const MemoryGuard::Id guard = guards.Poison(sink.address, sink.length, qp_.qp_num());
  guards.FabricWrites(sink.address, pushed->packet.data.data(), pushed->packet.data.size(), guard);
  pushes_.erase(pushed);
  qp_.completion_queue().PushAt(qp_.now_ns() + qp_.faults().completion.Throw(qp_.dice()),
                                {{wr_id, qp_.qp_num(), CompletionStatus::kSuccess, Opcode::kRead, 0},
                                 [this, guard] { qp_.ReleaseGuard(guard, "a push that was taken"); }});
  return true;
}

// ---- Executing

void SimResponder::OnPacket(SimPacket packet) {
  if (!qp_.working() || refusing_) return;
  if (packet.from != qp_.peer()) return;
  inbound_.push_back(std::move(packet));
  ExecuteInbound();
}

void SimResponder::ExecuteInbound() {
  while (!inbound_.empty() && qp_.working() && !refusing_ && !rnr_waiting_) {
    const SimPacket& packet = inbound_.front();
    if (packet.push_follows && inbound_.size() == 1) return;
    if (landing_ > 0 && (packet.opcode == Opcode::kSend || IsAtomic(packet.opcode))) return;
    if (packet.opcode == Opcode::kSend && !ExecuteSend(packet)) return;
    CompletionStatus status = CompletionStatus::kSuccess;
    if (packet.opcode == Opcode::kPush) AddPush(packet);
    const bool names_memory = packet.opcode == Opcode::kWrite || IsAnswered(packet.opcode);
    if (names_memory && Resolve(packet, RightFor(packet.opcode)) == nullptr) {
      status = CompletionStatus::kRemoteAccessError;
    } else if (IsAtomic(packet.opcode) && packet.remote_address % sizeof(uint64_t) != 0) {
      status = CompletionStatus::kRemoteInvalidRequest;
    }
    SimPacket next = std::move(inbound_.front());
    inbound_.pop_front();
    if (status != CompletionStatus::kSuccess) {
      refusing_ = true;
      answers_.push_back({std::move(next), status, 0});
    } else if (next.opcode == Opcode::kWrite) {
      BeginWrite(std::move(next));
    } else if (IsAtomic(next.opcode)) {
      BeginAtomic(std::move(next));
    } else {
      answers_.push_back({std::move(next), status, 0});
    }
    AnswerInOrder();
  }
}

void SimResponder::AddPush(const SimPacket& packet) {
  const uint64_t poll = qp_.completion_queue().polls();
  // Drops the pushes that cannot be taken any more.
  while (!pushes_.empty() && pushes_.front().told_in != 0 && pushes_.front().told_in != poll)
    pushes_.pop_front();
  pushes_.push_back({packet, sends_arrived_, sends_polled_ == sends_arrived_ ? received_in_poll_ : 0});
}

void SimResponder::OnSendPolled() {
  ++sends_polled_;
  received_in_poll_ = qp_.completion_queue().polls();
  TellPushOf(sends_polled_, received_in_poll_);
}

// The push behind that SEND can be taken until the next Poll() after `poll`; 0: not yet. False: there is no
// push.
bool SimResponder::TellPushOf(uint64_t send, uint64_t poll) {
  bool found = false;
  for (Pushed& pushed : pushes_) {
    if (pushed.send != send) continue;
    pushed.told_in = poll;
    found = true;
  }
  return found;
}

// False: it waits for a receive, or was refused.
bool SimResponder::ExecuteSend(const SimPacket& packet) {
  if (receives_.empty() && qp_.sends_wait()) {
    rnr_waiting_ = true;
    return false;
  }
  if (receives_.empty()) {
    if (qp_.network().options().strict_receives) {
      qp_.network().Violation(
          absl::StrCat("queue pair ", qp_.qp_num(), " of host ", qp_.host(), " has no receive for a SEND"));
    }
    if (++rnr_tries_ > qp_.faults().rnr_retries) {
      refusing_ = true;
      rnr_tries_ = 0;
      answers_.push_back({packet, CompletionStatus::kRnrRetryExceeded, 0});
      inbound_.clear();
      AnswerInOrder();
      return false;
    }
    rnr_waiting_ = true;
    Later(qp_.faults().rnr_timer_ns, [](SimResponder& self) {
      self.rnr_waiting_ = false;
      self.ExecuteInbound();
    });
    return false;
  }
  rnr_tries_ = 0;
  if (packet.rkey != 0 && !EndGrant(packet)) {
    refusing_ = true;
    answers_.push_back({packet, CompletionStatus::kRemoteAccessError, 0});
    inbound_.clear();
    AnswerInOrder();
    return false;
  }
  const Receive receive = receives_.front();
  receives_.pop_front();
  if (packet.data.size() > receive.buffer.length) {
    refusing_ = true;
    PushReceive(receive, CompletionStatus::kLocalError, 0, qp_.faults().completion.Throw(qp_.dice()));
    answers_.push_back({packet, CompletionStatus::kRemoteInvalidRequest, 0});
    inbound_.clear();
    AnswerInOrder();
    return false;
  }
  if (SimQueuePair* const sender = qp_.network().FindQueuePair(packet.from); sender != nullptr) {
    sender->requester().OnTaken(packet.number);
  }
  std::function<bool(std::unique_lock<std::mutex>*)> offer;
  if (packet.rkey == 0 && qp_.dice().Chance(qp_.network().options().offered)) {
    offer = [this, receive, data = packet.data](std::unique_lock<std::mutex>* lock) {
      return Offer(receive, data, lock);
    };
  } else {
    qp_.network().memory_guard().FabricWrites(receive.buffer.address, packet.data.data(), packet.data.size(),
                                              receive.guard);
  }
  PushReceive(receive, CompletionStatus::kSuccess, static_cast<uint32_t>(packet.data.size()),
              qp_.faults().completion.Throw(qp_.dice()), std::move(offer));
  return true;
}

bool SimResponder::Offer(const Receive& receive, const std::vector<uint8_t>& data,
                         std::unique_lock<std::mutex>* lock) {
  bool taken = false;
  if (lock != nullptr && qp_.is_established()) {
    offers_push_ = TellPushOf(sends_polled_ + 1, qp_.completion_queue().polls());
    lock->unlock();
    taken = qp_.handler().TakeSend(data);
    lock->lock();
    offers_push_ = false;
    if (!taken) TellPushOf(sends_polled_ + 1, 0);
  }
  if (!taken) {
    qp_.network().memory_guard().FabricWrites(receive.buffer.address, data.data(), data.size(),
                                              receive.guard);
    return false;
  }
  --arrivals_to_poll_;
  OnSendPolled();
  if (qp_.in_error()) {
    PushReceive(receive, CompletionStatus::kFlushed, 0, qp_.faults().flush.Throw(qp_.dice()));
  } else {
    receives_.insert(std::find_if(receives_.begin(), receives_.end(),
                                  [&](const Receive& other) { return other.number > receive.number; }),
                     receive);
    RetrySoon();
  }
  return true;
}

bool SimResponder::EndGrant(const SimPacket& packet) {
  const auto grant = grants_.find(packet.rkey);
  const bool granted =
      grant != grants_.end() && !grant->second.ended && grant->second.from_ns <= qp_.network().NowNs();
  const bool is_read = std::any_of(answers_.begin(), answers_.end(), [&](const Answer& answer) {
    return IsAnswered(answer.packet.opcode) && answer.packet.rkey == packet.rkey;
  });
  if (qp_.network().options().strict_endings && (!granted || is_read)) {
    qp_.network().Violation(absl::StrCat("a SEND of queue pair ", packet.from, " ends rkey ", packet.rkey,
                                         is_read ? ", which it still READs" : ", which it is not granted"));
  }
  if (granted) grant->second.ended = true;
  return granted;
}

void SimResponder::PushReceive(const Receive& receive, CompletionStatus status, uint32_t byte_len,
                               int64_t delay_ns, std::function<bool(std::unique_lock<std::mutex>*)> offer) {
  last_receive_completion_ns_ = std::max(last_receive_completion_ns_, qp_.now_ns() + delay_ns);
  const bool arrived = status == CompletionStatus::kSuccess;
  if (arrived) ++arrivals_to_poll_;
  ++sends_arrived_;
  qp_.completion_queue().PushAt(last_receive_completion_ns_,
                                {{receive.wr_id, qp_.qp_num(), status, Opcode::kReceive, byte_len},
                                 [this, arrived, guard = receive.guard] {
                                   if (arrived) --arrivals_to_poll_;
                                   qp_.ReleaseGuard(guard, "a receive");
                                   --receives_out_;
                                   OnSendPolled();
                                 },
                                 std::move(offer)});
}

uint8_t* SimResponder::Resolve(const SimPacket& packet, Access access) const {
  const auto it = grants_.find(packet.rkey);
  if (it == grants_.end()) return nullptr;
  const GrantedRange& grant = it->second;
  const uint64_t offset = packet.remote_address - grant.address;  // Wraps if below the range: too large.
  const bool inside = offset < grant.range.length && packet.length <= grant.range.length - offset;
  const bool in_force = !grant.ended && grant.from_ns <= qp_.network().NowNs();
  return inside && in_force && Allows(grant.access, access) ? grant.range.address + offset : nullptr;
}

void SimResponder::AnswerInOrder() {
  while (!answers_.empty() && qp_.working() && !answering_) {
    Answer& answer = answers_.front();
    if (answer.parts > 0) return;
    const uint64_t number = answer.packet.number;
    const uint8_t* memory = nullptr;
    if (answer.status == CompletionStatus::kSuccess && answer.packet.opcode == Opcode::kRead) {
      memory = Resolve(answer.packet, Access::kRead);
      if (memory == nullptr) answer.status = CompletionStatus::kRemoteAccessError;
    }
    if (answer.status != CompletionStatus::kSuccess) {
      qp_.ToPeer("a refusal", [number, status = answer.status](SimQueuePair& peer) {
        peer.requester().OnAnswer(number, status);
      });
      qp_.Trace(absl::StrCat("refuses work request ", number, " of qp ", qp_.peer()));
      if (answer.status != CompletionStatus::kRnrRetryExceeded) return qp_.EnterError();
      answers_.clear();  // After RNR the responder is not in error.
      return;
    }
    if (IsAtomic(answer.packet.opcode) || !answer.data.empty()) {
      qp_.ToPeer("an answer", [number, data = std::move(answer.data)](SimQueuePair& peer) {
        peer.requester().OnReadData(number, 0, data, /*last=*/true);
      });
      answers_.pop_front();
      continue;
    }
    if (answer.packet.opcode != Opcode::kRead) {
      qp_.ToPeer("", [number](SimQueuePair& peer) {
        peer.requester().OnAnswer(number, CompletionStatus::kSuccess);
      });
      answers_.pop_front();
      continue;
    }
    const ReadService service = qp_.network().ReadServiceOf(qp_.host());
    if (service.gap_ns == ReadService::kNever) return;
    if (Resolve(answer.packet, Access::kReadRepeatedly) != nullptr) return BeginReadInWords(answer, memory);
    const size_t count = std::min<size_t>(service.chunk_bytes, answer.packet.length - answer.sent_bytes);
    const uint8_t* const from = memory + answer.sent_bytes;
    const bool last = answer.sent_bytes + count == answer.packet.length;
    qp_.ToPeer(last ? "the last of a READ" : "some of a READ",
               [number, offset = answer.sent_bytes, data = std::vector<uint8_t>(from, from + count),
                last](SimQueuePair& peer) { peer.requester().OnReadData(number, offset, data, last); });
    answer.sent_bytes += count;
    if (last) {
      answers_.pop_front();
      continue;
    }
    answering_ = true;
    Later(service.gap_ns, [](SimResponder& self) {
      self.answering_ = false;
      self.AnswerInOrder();
    });
  }
}

void SimResponder::Flush() {
  inbound_.clear();
  answers_.clear();
  landing_ = 0;
  pushes_.clear();
  for (const Receive& receive : receives_) {
    PushReceive(receive, CompletionStatus::kFlushed, 0, qp_.faults().flush.Throw(qp_.dice()));
  }
  receives_.clear();
}

}  // namespace hawser::sim
