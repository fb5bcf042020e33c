#include "hawser/transport/fabric/verbs/queue_pair.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/verbs/errors.h"
#include "hawser/transport/fabric/verbs/order.h"
#include "hawser/transport/fabric/verbs/rings.h"

namespace hawser::fabric {
namespace {

// The limit of one work request (InfiniBand Architecture Specification 1.2.1, 9.2: 2^31 bytes).
constexpr uint64_t kMessageBytesMax = uint64_t{1} << 31;

ibv_wr_opcode ToVerbs(Opcode opcode) {
  switch (opcode) {
    case Opcode::kRead:
      return IBV_WR_RDMA_READ;
    case Opcode::kWrite:
      return IBV_WR_RDMA_WRITE;
    default:
      return IBV_WR_SEND;
  }
}

}  // namespace

VerbsQueuePair::VerbsQueuePair(VerbsCompletionQueue& completion_queue, const VerbsMemory& memory,
                               const VerbsFabricOptions& fabric, const QueuePairOptions& options,
                               GrantKind grants, uint32_t number, ConnectionHandler& handler)
    : completion_queue_(completion_queue),
      device_(completion_queue.device()),
      memory_(memory),
      fabric_(fabric),
      handler_(handler),
      options_(options),
      token_(completion_queue.Register(*this)),
      number_((1u << 24) + number),
      qp_num_(number_),
      read_depth_(std::min(options.read_depth, device_.read_depth_max())),
      sends_(options.send_depth,
             static_cast<uint32_t>(rings::SendEntries(options.send_depth, grants == GrantKind::kWindows))),
      grants_(device_, memory, grants, rings::GrantsMax(options.send_depth)),
      sinks_(device_, memory, device_.iwarp() && fabric.sink_registrations,
             VerbsMemory::OptionalAccess(fabric)),
      receives_(std::bit_ceil(options.receive_depth)),
      device_qp_(std::make_shared<VerbsDeviceQp>(
          completion_queue, fabric, token_,
          static_cast<uint32_t>(rings::SendEntries(options.send_depth, grants == GrantKind::kWindows)),
          options.receive_depth)) {}

VerbsQueuePair::~VerbsQueuePair() {
  completion_queue_.Unregister(token_);
  if (device_.in_forked_child() || !entered_) return;
  device_qp_->End();
  VerbsGrants::Leftover grants = grants_.TakeAll();
  const bool idle = receives_posted_ == receives_retired_ && sends_.empty() && !grants.gives_access() &&
                    !releases_some_ && revoking_ == 0 && revocations_.empty() && !sinks_.refused();
  device_qp_->Release(std::move(grants));
  if (!idle) device_qp_->Destroy();
  VerbsGrants::Leftover refused;
  refused.registrations = sinks_.TakeAll();  // The last command tries these again.
  device_qp_->Release(std::move(refused));
  HandOver(
      [id = id_, &completion_queue = completion_queue_](VerbsDeviceQp& qp) {
        qp.Destroy();
        if (id != nullptr) qp.DestroyId(id);
        completion_queue.LeaveSoon();
        return absl::OkStatus();
      },
      nullptr);
}

void VerbsQueuePair::HandOver(absl::AnyInvocable<absl::Status(VerbsDeviceQp&)> command, Then then) {
  completion_queue_.RunCommand(connects_alone_ ? device_qp_.get() : nullptr,
                               [qp = device_qp_, command = std::move(command), then]() mutable {
                                 absl::Status result = command(*qp);
                                 if (then != nullptr) qp->Report({then, std::move(result)});
                               });
}

void VerbsQueuePair::TakeResults() {
  for (const auto& [then, result] : device_qp_->TakeResults()) (this->*then)(result);
}

// --- Posting

absl::Status VerbsQueuePair::NotUsable(absl::string_view call) const {
  if (absl::Status status = device_.CheckProcess(call); !status.ok()) return status;
  if (state_ != State::kError) {
    return absl::FailedPreconditionError(absl::StrCat(call, ": the queue pair is not connected yet"));
  }
  absl::Status why = absl::FailedPreconditionError(
      absl::StrCat(call, " to ", peer_address_.ToString(), ": the queue pair is in error: ",
                   error_.ok() ? "Disconnect() was called, or a work request failed" : error_.message()));
  CopyViolation(error_, why);
  return why;
}

absl::Status VerbsQueuePair::CheckSend(const SendWorkRequest& request) const {
  const ibv_device_attr& attr = device_.attr();
  const bool read = request.opcode == Opcode::kRead;
  // A sink that is registered for the READ is one range. (On iWARP it has one entry anyway. siw accepts more,
  // but fills only the first.)
  const size_t read_sges_max = sinks_.enabled() ? 1 : static_cast<size_t>(std::max(attr.max_sge_rd, 0));
  const size_t sges_max =
      read && read_sges_max > 0 ? std::min(read_sges_max, device_.sge_max()) : device_.sge_max();
  if (request.sges.empty() || request.sges.size() > sges_max || request.opcode > Opcode::kWrite) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PostSend to ", peer_address_.ToString(), ": ", request.sges.size(), " sges, opcode ",
        static_cast<int>(request.opcode), ": 1 to ", sges_max, " sges of a SEND, READ or WRITE needed",
        read ? " (max_sge_rd of the device; over iWARP 1)" : ""));
  }
  uint64_t total_bytes = 0;
  for (const Sge& sge : request.sges) {
    if (!memory_.Contains(sge)) return memory_.Refusal(sge);
    total_bytes += sge.length;
  }
  if (total_bytes > kMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", peer_address_.ToString(), ": ",
                                                   total_bytes, " bytes in one work request, at most ",
                                                   kMessageBytesMax, " are possible"));
  }
  if (read && read_depth_ == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("PostSend to ", peer_address_.ToString(), ": a READ, but a READ depth of 0 was agreed"));
  }
  return absl::OkStatus();
}

absl::Status VerbsQueuePair::PostSend(absl::Span<const SendWorkRequest> requests) {
  if ((state_ != State::kEstablished && state_ != State::kAccepting) || device_.in_forked_child()) {
    return NotUsable("PostSend");
  }
  if (requests.size() > room()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("PostSend to ", peer_address_.ToString(), ": ", requests.size(),
                     " work requests, but the send queue of ", sends_.depth(), " has room for ", room(),
                     ": wait for completions, and signal one request in every queue's length at least"));
  }
  for (const SendWorkRequest& request : requests) {
    if (absl::Status status = CheckSend(request); !status.ok()) return status;
  }
  if (!sinks_.enabled()) return PostChain(requests);
  if (absl::Status status = BeginSinks(requests); !status.ok()) return status;
  const absl::Status posted = PostChain(requests);
  chain_sinks_.clear();
  return posted;
}

// Registers the sinks of all READs, or of none.
absl::Status VerbsQueuePair::BeginSinks(absl::Span<const SendWorkRequest> requests) {
  for (const SendWorkRequest& request : requests) {
    absl::StatusOr<VerbsSinks::Begun> begun = VerbsSinks::Begun{};
    if (request.opcode == Opcode::kRead) begun = sinks_.Begin(request.sges[0]);
    if (!begun.ok()) {
      for (const VerbsSinks::Begun& earlier : std::exchange(chain_sinks_, {})) EndSink(earlier.number);
      const absl::Status why(begun.status().code(), absl::StrCat("PostSend to ", peer_address_.ToString(),
                                                                 ": ", begun.status().message()));
      if (absl::IsInternal(why)) Fail(why);
      return why;
    }
    chain_sinks_.push_back(*begun);
  }
  return absl::OkStatus();
}

// A READ no longer fills the sink with this number. False: the peer may still write there, so the queue pair
// has been ended, and the READ is not complete before the ibv_qp is destroyed.
bool VerbsQueuePair::EndSink(uint32_t number) {
  if (number == VerbsSinks::kNone) return true;
  const absl::Status ended = sinks_.End(number);
  if (ended.ok()) return true;
  Fail(absl::Status(ended.code(), absl::StrCat("peer ", peer_address_.ToString(), ": ", ended.message())));
  return false;
}

// Posts the work requests of grants first, because `requests` may name those grants to the peer. While a
// BIND_MW has no place, `requests` wait, and so does what is posted after them.
absl::Status VerbsQueuePair::PostChain(absl::Span<const SendWorkRequest> requests) {
  size_t of_grants = 0, of_waiting = 0;
  absl::Span<const SendWorkRequest> to_wait;
  if (grants_.queued() != 0 || !waiting_.empty()) [[unlikely]] {
    of_grants = std::min<size_t>(grants_.queued(), grants_.sends_max() - sends_.others());
    of_waiting = waiting_.size();
    if (grants_.HasBindBehind(of_grants)) {
      of_waiting = 0;
      to_wait = std::exchange(requests, {});
    }
  }
  const size_t of_earlier = of_grants + of_waiting;
  const size_t count = of_earlier + requests.size();
  chain_.assign(count, {});
  chain_sges_.clear();
  chain_sges_.reserve((of_waiting + requests.size()) * kSgeMax);  // Keeps every sg_list valid.
  for (size_t i = 0; i < count; ++i) {
    ibv_send_wr& wr = chain_[i];
    VerbsSendRing::Entry entry;
    if (i < of_grants) {
      grants_.Fill(i, wr, entry);
      if (!entry.signaled && ++unsignaled_grants_ >= grants_.signal_interval()) {
        entry.signaled = true;
        wr.send_flags |= IBV_SEND_SIGNALED;
      }
    } else if (i < of_earlier) [[unlikely]] {
      entry = Translate(waiting_[i - of_grants].ToRequest(), wr);
    } else {
      const size_t index = i - of_earlier;
      entry = Translate(requests[index], wr);
      if (!chain_sinks_.empty() && chain_sinks_[index].number != VerbsSinks::kNone) {
        entry.sink = chain_sinks_[index].number;
        wr.sg_list->lkey = chain_sinks_[index].lkey;
      }
    }
    if (entry.signaled) unsignaled_grants_ = 0;
    wr.wr_id = VerbsCompletionQueue::WorkRequestId(token_, /*receive=*/false, sends_.Push(entry));
    wr.next = i + 1 < count ? &chain_[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  int error = 0;
  if (count != 0) {
    BeforePost();
    error = std::abs(ibv_post_send(qp_, chain_.data(), &bad));  // siw returns a negative errno.
  }
  if (error == 0) {
    if (of_grants != 0) grants_.OnPosted(of_grants);
    if (of_waiting != 0) waiting_.clear();
    for (const SendWorkRequest& request : to_wait) waiting_.emplace_back(request);
    return absl::OkStatus();
  }
  // The requests before `bad` were posted, and will complete. The caller is told that none of `requests` was
  // posted. Those that waited were taken before, and complete, too.
  const size_t posted =
      bad >= chain_.data() && bad < chain_.data() + count ? static_cast<size_t>(bad - chain_.data()) : 0;
  for (size_t i = posted; i < count; ++i) EndSink(sends_.at(static_cast<uint32_t>(chain_[i].wr_id)).sink);
  sends_.Unpush(static_cast<uint32_t>(count - posted));
  grants_.OnPosted(std::min(posted, of_grants));
  if (posted > of_grants) {
    const size_t of_waiting_posted = std::min(posted - of_grants, of_waiting);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(of_waiting_posted));
  }
  for (size_t i = of_earlier; i < posted; ++i) sends_.Silence(static_cast<uint32_t>(chain_[i].wr_id));
  Fail(absl::InternalError(absl::StrCat("PostSend to ", peer_address_.ToString(), ": ibv_post_send(): ",
                                        DescribeErrno(error), " at work request ", posted, " of ", count)));
  return error_;
}

// Posts what waited for a place, as far as there are some now.
void VerbsQueuePair::PostQueued() {
  if (grants_.queued() == 0 && waiting_.empty()) return;
  if (state_ != State::kEstablished && state_ != State::kAccepting) return;
  PostChain({}).IgnoreError();  // On an error PostChain() has called Fail().
}

VerbsQueuePair::Waiting::Waiting(const SendWorkRequest& from) : request(from), sge_count(from.sges.size()) {
  std::copy(from.sges.begin(), from.sges.end(), sges);
  request.sges = {};
}

SendWorkRequest VerbsQueuePair::Waiting::ToRequest() const {
  SendWorkRequest to = request;
  to.sges = absl::MakeConstSpan(sges, sge_count);
  return to;
}

VerbsSendRing::Entry VerbsQueuePair::Translate(const SendWorkRequest& from, ibv_send_wr& to) {
  ibv_sge* const sges = chain_sges_.data() + chain_sges_.size();
  uint64_t length_bytes = 0;
  for (const Sge& sge : from.sges) {
    chain_sges_.push_back(memory_.ToVerbs(sge));
    length_bytes += sge.length;
  }
  to.sg_list = sges;
  to.num_sge = static_cast<int>(from.sges.size());
  to.opcode = ToVerbs(from.opcode);
  if (from.signaled) to.send_flags |= IBV_SEND_SIGNALED;
  if (from.opcode != Opcode::kRead && length_bytes <= inline_bytes_) to.send_flags |= IBV_SEND_INLINE;
  if (from.opcode != Opcode::kSend) {
    to.wr.rdma = {.remote_addr = from.remote_address, .rkey = from.rkey};
  } else if (from.rkey != 0) {
    to.opcode = IBV_WR_SEND_WITH_INV;
    to.invalidate_rkey = from.rkey;
  }
  return {.wr_id = from.wr_id, .opcode = from.opcode, .signaled = from.signaled};
}

absl::Status VerbsQueuePair::PostReceive(absl::Span<const ReceiveWorkRequest> requests) {
  if (state_ == State::kError || device_.in_forked_child()) return NotUsable("PostReceive");
  const size_t outstanding = receives_posted_ - receives_retired_ + pending_receives_.size();
  if (requests.size() + outstanding > options_.receive_depth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("PostReceive: ", requests.size(), " work requests, but the receive queue of ",
                     options_.receive_depth, " has room for ", options_.receive_depth - outstanding));
  }
  for (const ReceiveWorkRequest& request : requests) {
    if (!memory_.Contains(request.buffer)) return memory_.Refusal(request.buffer);
  }
  if (qp_ == nullptr) {
    pending_receives_.insert(pending_receives_.end(), requests.begin(), requests.end());
    return absl::OkStatus();
  }
  return PostReceives(requests);
}

absl::Status VerbsQueuePair::PostReceives(absl::Span<const ReceiveWorkRequest> requests) {
  if (requests.empty()) return absl::OkStatus();
  const size_t count = requests.size();
  receive_chain_.assign(count, {});
  chain_sges_.clear();
  chain_sges_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t number = receives_posted_ + static_cast<uint32_t>(i);
    receives_[number & (receives_.size() - 1)] = requests[i].wr_id;
    chain_sges_.push_back(memory_.ToVerbs(requests[i].buffer));
    ibv_recv_wr& wr = receive_chain_[i];
    wr.wr_id = VerbsCompletionQueue::WorkRequestId(token_, /*receive=*/true, number);
    wr.sg_list = &chain_sges_[i];
    wr.num_sge = 1;
    wr.next = i + 1 < count ? &receive_chain_[i + 1] : nullptr;
  }
  ibv_recv_wr* bad = nullptr;
  const int error = std::abs(ibv_post_recv(qp_, receive_chain_.data(), &bad));
  if (error == 0) {
    receives_posted_ += static_cast<uint32_t>(count);
    return absl::OkStatus();
  }
  // If some were posted, all count as posted. Those that were not complete as flushed.
  const size_t posted = bad >= receive_chain_.data() && bad < receive_chain_.data() + count
                            ? static_cast<size_t>(bad - receive_chain_.data())
                            : 0;
  receives_posted_ += static_cast<uint32_t>(posted);
  Fail(absl::InternalError(absl::StrCat("PostReceive: ibv_post_recv(): ", DescribeErrno(error),
                                        " at work request ", posted, " of ", count)));
  if (posted == 0) return error_;
  for (size_t i = posted; i < count; ++i) DeliverFlushed(requests[i].wr_id, Opcode::kReceive);
  return absl::OkStatus();
}

absl::StatusOr<Granted> VerbsQueuePair::Grant(const Sge& range, Access access) {
  if (!memory_.Contains(range)) return memory_.Refusal(range);
  // An idle queue pair does not keep the device open.
  if (state_ == State::kIdle || state_ == State::kError || device_.in_forked_child())
    return NotUsable("Grant");
  absl::StatusOr<uint32_t> rkey = grants_.Grant(range, access);
  if (!rkey.ok() && revoking_ != 0) {
    // Those that are being revoked count, too. Perhaps they are by now; else this waits for the device.
    OnRevoked(absl::OkStatus());
    if (revoking_ != 0) device_qp_->RevokeAll();
    OnRevoked(absl::OkStatus());
    if (state_ == State::kError) return NotUsable("Grant");
    rkey = grants_.Grant(range, access);
  }
  if (!rkey.ok()) return rkey.status();
  if (grants_.queued() > 0) {
    FillWindowStock();
    ScheduleOnce();
  }
  return Granted{reinterpret_cast<uint64_t>(range.address), *rkey};
}

void VerbsQueuePair::Revoke(uint32_t rkey, uint64_t wr_id) {
  // In error there is nothing to revoke any more, see EnterError().
  if (state_ == State::kError || device_.in_forked_child()) return FlushRevocation(wr_id);
  if (ibv_mr* const mr = grants_.TakeRegistration(rkey); mr != nullptr) {
    ++revoking_;
    const bool is_first = device_qp_->Revoke({mr, wr_id});
    // The control thread is behind. A poller that grants faster than that deregisters does so itself, or
    // grants would run out. It does not wait for a command that is under way.
    if (revoking_ > options_.send_depth && device_qp_->TryRevokeAll()) return OnRevoked(absl::OkStatus());
    if (!is_first) return;  // The command that was given takes it along.
    return HandOver(
        [](VerbsDeviceQp& qp) {
          qp.RevokeAll();
          return absl::OkStatus();
        },
        &VerbsQueuePair::OnRevoked);
  }
  if (!grants_.Revoke(rkey, wr_id)) return ScheduleOnce();
  if (!waiting_.empty()) ScheduleOnce();  // Perhaps for a BIND_MW that is not needed any more.
  completion_queue_.Deliver(token_, {.wr_id = wr_id, .opcode = Opcode::kRevoke});
}

void VerbsQueuePair::OnRevoked(const absl::Status&) {
  for (const VerbsDeviceQp::Revocation& revocation : device_qp_->TakeRevoked()) {
    --revoking_;
    grants_.OnDeregistered();
    if (revocation.error == 0) {
      completion_queue_.Deliver(token_, {.wr_id = revocation.wr_id, .opcode = Opcode::kRevoke});
      continue;
    }
    // Fail() ends the ibv_qp, so this peer loses its access. No other peer was told the rkey.
    Fail(absl::InternalError(
        absl::StrCat("peer ", peer_address_.ToString(),
                     ": revoke a grant: ibv_dereg_mr(): ", DescribeErrno(std::abs(revocation.error)))));
    FlushRevocation(revocation.wr_id);
  }
}

void VerbsQueuePair::OpenSink(uint8_t* address, uint64_t length_bytes) {
  if (!sinks_.enabled() || state_ == State::kError || device_.in_forked_child()) return;
  sinks_.Open(address, length_bytes);
}

bool VerbsQueuePair::CloseSink(const uint8_t* address) {
  if (!sinks_.enabled() || device_.in_forked_child()) return true;
  const absl::Status closed = sinks_.Close(address);
  if (!closed.ok()) {
    Fail(
        absl::Status(closed.code(), absl::StrCat("peer ", peer_address_.ToString(), ": ", closed.message())));
  }
  return !sinks_.refused();
}

// --- Completing

bool VerbsQueuePair::OnCompletion(const ibv_wc& wc, bool receive, uint32_t number, Completion& out) {
  if (!receive) return OnSendCompletion(wc, number, out);
  if (number - receives_retired_ >= receives_posted_ - receives_retired_)
    return false;                  // FlushOutstanding() has completed it.
  receives_retired_ = number + 1;  // In order: an RC queue pair with a receive queue of its own.
  out = {.wr_id = receives_[number & (receives_.size() - 1)],
         .qp_num = qp_num_,
         .status = ToCompletionStatus(wc.status),
         .opcode = Opcode::kReceive,
         .byte_len = wc.status == IBV_WC_SUCCESS ? wc.byte_len : 0};  // Else undefined: ibv_poll_cq(3).
  if (wc.status != IBV_WC_SUCCESS) {
    if (state_ != State::kError) OnFailedRequest();
    return true;
  }
  if (state_ == State::kAnswering) [[unlikely]] {
    Move(Event::kAnswered);  // The peer has the answer. The result of the command comes later.
  }
  if ((wc.wc_flags & IBV_WC_WITH_INV) != 0 && !grants_.OnEnded(wc.invalidated_rkey)) [[unlikely]] {
    Fail(ViolationError(Violation::kMemoryAccess,
                        absl::StrCat("peer ", peer_address_.ToString(),
                                     ": it ended a grant that this side was revoking already")));
  }
  return true;
}

bool VerbsQueuePair::OnSendCompletion(const ibv_wc& wc, uint32_t number, Completion& out) {
  if (!sends_.Outstanding(number)) return false;
  if (AllSignaled()) {
    OnUnorderedSendCompletion(wc, number);
    return false;
  }
  const bool ok = wc.status == IBV_WC_SUCCESS;
  const VerbsSendRing::Entry done = sends_.at(number);
  const bool of_caller = done.kind == VerbsSendRing::Kind::kCaller;
  // The requests before it were not signaled and have succeeded. If it is the caller's, its completion says
  // so. If not, another completion of the caller's may follow, or the end.
  while (sends_.oldest() != number) {
    const VerbsSendRing::Entry before = sends_.Retire();
    if (!of_caller && before.kind == VerbsSendRing::Kind::kCaller) {
      untold_.push_back({before.wr_id, before.opcode});
    }
  }
  sends_.Retire();
  if (of_caller) untold_.clear();
  if (!ok && state_ != State::kError) {
    if (of_caller) {
      OnFailedRequest();  // The completion reports the reason.
    } else {
      Fail(absl::InternalError(absl::StrCat("peer ", peer_address_.ToString(), ": ",
                                            done.kind == VerbsSendRing::Kind::kBind ? "BIND_MW" : "LOCAL_INV",
                                            " of a grant failed: ", Describe(ToCompletionStatus(wc.status)),
                                            ": was its region deregistered too early?")));
    }
  }
  if (grants_.queued() != 0 || !waiting_.empty()) ScheduleOnce();  // There are places now.
  if (disconnected_ && sends_.callers() == 0) FlushUntoldAndWaiting();
  out = {
      .wr_id = done.wr_id, .qp_num = qp_num_, .status = ToCompletionStatus(wc.status), .opcode = done.opcode};
  switch (done.kind) {
    case VerbsSendRing::Kind::kCaller:
      return done.signaled || !ok;
    case VerbsSendRing::Kind::kInvalidate:
      grants_.OnInvalidated(done.window, ok);
      if (!ok) {
        FlushRevocation(done.wr_id);
        return false;
      }
      out.opcode = Opcode::kRevoke;
      return true;
    default:
      return false;
  }
}

void VerbsQueuePair::OnUnorderedSendCompletion(const ibv_wc& wc, uint32_t number) {
  sends_.Complete(number, ToCompletionStatus(wc.status));
  if (wc.status != IBV_WC_SUCCESS && state_ != State::kError) OnFailedRequest();
  DeliverInOrder();
}

// siw completes a SEND before the READ that was posted before it. So each completion waits here for those
// before it, and an unsignaled one for the next signaled one. No request of a grant is among them, see
// has_windows().
void VerbsQueuePair::DeliverInOrder() {
  uint32_t proved = sends_.oldest();
  for (uint32_t next = proved; sends_.Outstanding(next) && sends_.at(next).completed; ++next) {
    const VerbsSendRing::Entry& entry = sends_.at(next);
    if (entry.signaled || entry.status != CompletionStatus::kSuccess) proved = next + 1;
  }
  while (sends_.oldest() != proved && !keeps_sink_) {
    VerbsSendRing::Entry& oldest = sends_.at(sends_.oldest());
    if (!EndSink(std::exchange(oldest.sink, VerbsSinks::kNone))) {
      keeps_sink_ = true;
      oldest.status = CompletionStatus::kFlushed;  // For FlushOutstanding(), as those behind it.
      return;
    }
    const VerbsSendRing::Entry entry = sends_.Retire();
    if (entry.kind != VerbsSendRing::Kind::kCaller) continue;
    if (!entry.signaled && entry.status == CompletionStatus::kSuccess) continue;
    completion_queue_.Deliver(token_, {.wr_id = entry.wr_id, .status = entry.status, .opcode = entry.opcode});
  }
}

void VerbsQueuePair::DeliverFlushed(uint64_t wr_id, Opcode opcode) {
  completion_queue_.Deliver(token_, {.wr_id = wr_id, .status = CompletionStatus::kFlushed, .opcode = opcode});
}

// After Disconnect() no signaled request may follow these, and the caller waits for the last of them. Their
// completions say flushed, which promises nothing about the peer.
void VerbsQueuePair::FlushUntold() {
  for (const Untold& untold : std::exchange(untold_, {})) DeliverFlushed(untold.wr_id, untold.opcode);
}

// No request of the caller's is outstanding, so these are the next ones in order.
void VerbsQueuePair::FlushUntoldAndWaiting() {
  FlushUntold();
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    DeliverFlushed(waiting.request.wr_id, waiting.request.opcode);
  }
}

// A revocation that did not succeed is complete once the control thread has moved the ibv_qp to error and has
// released the grants: until then the peer may have access, and the memory cannot be deregistered.
void VerbsQueuePair::FlushRevocation(uint64_t wr_id) {
  if (releasing_ || unreleased_) return revocations_.push_back(wr_id);
  DeliverFlushed(wr_id, Opcode::kRevoke);
}

void VerbsQueuePair::ScheduleOnce() {
  if (std::exchange(scheduled_, true)) return;
  completion_queue_.Schedule(token_);
}

}  // namespace hawser::fabric
