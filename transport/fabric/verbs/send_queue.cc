#include "hawser/transport/fabric/verbs/send_queue.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/transport/fabric/verbs/check_send.h"
#include "hawser/transport/fabric/verbs/errors.h"
#include "hawser/transport/fabric/verbs/order.h"
#include "hawser/transport/fabric/verbs/rings.h"
#include "hawser/transport/fabric/verbs/suitability.h"

namespace hawser::fabric {
namespace {

using State = VerbsEndpoint::State;

ibv_wr_opcode ToVerbs(Opcode opcode) {
  switch (opcode) {
    case Opcode::kRead:
      return IBV_WR_RDMA_READ;
    case Opcode::kWrite:
      return IBV_WR_RDMA_WRITE;
    case Opcode::kCompareSwap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
    case Opcode::kFetchAdd:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    default:
      return IBV_WR_SEND;
  }
}

}  // namespace

VerbsSendQueue::VerbsSendQueue(VerbsEndpoint& endpoint, const VerbsMemory& memory,
                               const VerbsFabricOptions& fabric, uint32_t depth, GrantKind grants)
    : endpoint_(endpoint),
      device_(endpoint.device()),
      memory_(memory),
      token_(endpoint.token()),
      all_signaled_(device_.iwarp()),
      sends_(depth, static_cast<uint32_t>(rings::SendEntries(depth, grants == GrantKind::kWindows))),
      copied_(depth, PostsInline(device_.attr(), device_.iwarp())),
      grants_(device_, memory, grants, rings::GrantsMax(depth)),
      sinks_(device_, memory, device_.iwarp() && fabric.sink_registrations,
             VerbsMemory::OptionalAccess(fabric)) {}

// --- Posting

absl::Status VerbsSendQueue::Post(ibv_qp* qp, absl::Span<const SendWorkRequest> requests) {
  if (requests.size() > room()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("PostSend to ", endpoint_.peer(), ": ", requests.size(),
                     " work requests, but the send queue of ", sends_.depth(), " has room for ", room(),
                     ": wait for completions, and signal one request in every queue's length at least"));
  }
  for (const SendWorkRequest& request : requests) {
    if (absl::Status status = CheckSend(request, endpoint_, memory_, sinks_.enabled()); !status.ok())
      return status;
  }
  if (!sinks_.enabled()) return PostChain(qp, requests);
  if (absl::Status status = BeginSinks(requests); !status.ok()) return status;
  const absl::Status posted = PostChain(qp, requests);
  chain_sinks_.clear();
  return posted;
}

// Registers the sinks of all READs, or of none.
absl::Status VerbsSendQueue::BeginSinks(absl::Span<const SendWorkRequest> requests) {
  for (const SendWorkRequest& request : requests) {
    absl::StatusOr<VerbsSinks::Begun> begun = VerbsSinks::Begun{};
    if (request.opcode == Opcode::kRead) begun = sinks_.Begin(request.sges[0]);
    if (!begun.ok()) {
      for (const VerbsSinks::Begun& earlier : std::exchange(chain_sinks_, {})) EndSink(earlier.number);
      const absl::Status why(begun.status().code(),
                             absl::StrCat("PostSend to ", endpoint_.peer(), ": ", begun.status().message()));
      if (absl::IsInternal(why)) endpoint_.Fail(why);
      return why;
    }
    chain_sinks_.push_back(*begun);
  }
  return absl::OkStatus();
}

// A READ no longer fills the sink with this number. False: the peer may still write there, so the queue pair
// has been ended, and the READ is not complete before the ibv_qp is destroyed.
bool VerbsSendQueue::EndSink(uint32_t number) {
  if (number == VerbsSinks::kNone) return true;
  const absl::Status ended = sinks_.End(number);
  if (ended.ok()) return true;
  endpoint_.Fail(absl::Status(ended.code(), absl::StrCat("peer ", endpoint_.peer(), ": ", ended.message())));
  return false;
}

bool VerbsSendQueue::PostInline(absl::Span<const uint8_t> message) {
  if (message.empty() || message.size() > inline_bytes_) return false;
  if (sends_.copied() + copied_.count() >= copied_.most() || sends_.places() <= copied_.count()) return false;
  if (grants_.queued() != 0 || !waiting_.empty()) return false;  // These come first.
  copied_.Add(message);
  return true;
}

void VerbsSendQueue::RingDoorbell(ibv_qp* qp) {
  if (!copied_.empty()) PostChain(qp, {}).IgnoreError();  // On an error PostChain() has called Fail().
}

// Posts, in this order, copied SENDs, the work requests of grants, which `requests` may name to the peer,
// what waited, and `requests`. What finds no place waits, and so does what is posted after it.
absl::Status VerbsSendQueue::PostChain(ibv_qp* qp, absl::Span<const SendWorkRequest> requests) {
  const size_t copied = copied_.count();
  size_t places = sends_.places() - copied;
  size_t of_grants = 0, of_waiting = 0;
  size_t now = requests.size();  // Of `requests`; those behind wait.
  if (grants_.queued() != 0 || !waiting_.empty() || now > places) [[unlikely]] {
    of_grants = std::min<size_t>(grants_.queued(), grants_.sends_max() - sends_.others());
    if (grants_.HasBindBehind(of_grants)) places = 0;
    of_waiting = std::min(waiting_.size(), places);
    now = std::min(now, places - of_waiting);
  }
  const size_t to_grants = copied + of_grants;
  const size_t to_waiting = to_grants + of_waiting;
  const size_t count = to_waiting + now;
  chain_.assign(count, {});
  chain_sges_.clear();
  chain_sges_.reserve(copied + (of_waiting + now) * kSgeMax);  // Keeps every sg_list valid.
  for (size_t i = 0; i < count; ++i) {
    ibv_send_wr& wr = chain_[i];
    VerbsSendRing::Entry entry;
    if (i < copied) {
      entry = TranslateCopied(i, wr);
    } else if (i < to_grants) {
      entry = TranslateGrant(i - copied, wr);
    } else if (i < to_waiting) [[unlikely]] {
      entry = Translate(waiting_[i - to_grants].ToRequest(), {}, wr);
    } else {
      entry = Translate(requests[i - to_waiting], SinkOf(i - to_waiting), wr);
    }
    const uint32_t number = sends_.Push(entry);
    // What waits for copied SENDs waits for this completion.
    if (sends_.places() == 0 && sends_.copied() != 0) [[unlikely]]
      wr.send_flags |= IBV_SEND_SIGNALED;  // The caller gets no completion of it.
    if ((wr.send_flags & IBV_SEND_SIGNALED) != 0) unsignaled_grants_ = unsignaled_copied_ = 0;
    wr.wr_id = VerbsCompletionQueue::WorkRequestId(token_, /*receive=*/false, number);
    wr.next = i + 1 < count ? &chain_[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  int error = 0;
  if (count != 0) {
    BeforePost();
    error = std::abs(ibv_post_send(qp, chain_.data(), &bad));  // siw returns a negative errno.
  }
  // The requests before `bad` were posted, and will complete. Those that waited were taken before, and
  // complete, too.
  size_t posted = count;
  if (error != 0) {
    posted =
        bad >= chain_.data() && bad < chain_.data() + count ? static_cast<size_t>(bad - chain_.data()) : 0;
  }
  const auto taken = [posted](size_t from, size_t to) { return std::clamp(posted, from, to) - from; };
  if (copied != 0) copied_.Clear();
  if (of_grants != 0) grants_.OnPosted(taken(copied, to_grants));
  if (of_waiting != 0) {
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(taken(to_grants, to_waiting)));
  }
  if (error == 0) [[likely]] {
    for (; now < requests.size(); ++now) waiting_.emplace_back(requests[now]);
    return absl::OkStatus();
  }
  // To the caller none of `requests` was posted, though the device carries out those that it has taken.
  for (size_t i = posted; i < count; ++i) EndSink(sends_.at(static_cast<uint32_t>(chain_[i].wr_id)).sink);
  sends_.Unpush(static_cast<uint32_t>(count - posted));
  for (size_t i = to_waiting; i < posted; ++i) sends_.Silence(static_cast<uint32_t>(chain_[i].wr_id));
  endpoint_.Fail(absl::InternalError(absl::StrCat("PostSend to ", endpoint_.peer(),
                                                  ": ibv_post_send(): ", DescribeErrno(error),
                                                  " at work request ", posted, " of ", count)));
  return endpoint_.error();
}

VerbsSinks::Begun VerbsSendQueue::SinkOf(size_t request) const {
  return chain_sinks_.empty() ? VerbsSinks::Begun{} : chain_sinks_[request];
}

void VerbsSendQueue::PostQueued(ibv_qp* qp) {
  if (grants_.queued() == 0 && waiting_.empty()) return;
  if (endpoint_.state() != State::kEstablished && endpoint_.state() != State::kAccepting) return;
  PostChain(qp, {}).IgnoreError();  // On an error PostChain() has called Fail().
}

VerbsSendQueue::Waiting::Waiting(const SendWorkRequest& from) : request(from), sge_count(from.sges.size()) {
  std::copy(from.sges.begin(), from.sges.end(), sges);
  request.sges = {};
}

SendWorkRequest VerbsSendQueue::Waiting::ToRequest() const {
  SendWorkRequest to = request;
  to.sges = absl::MakeConstSpan(sges, sge_count);
  return to;
}

VerbsSendRing::Entry VerbsSendQueue::Translate(const SendWorkRequest& from, const VerbsSinks::Begun& sink,
                                               ibv_send_wr& to) {
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
  // What is inline the provider copies with the processor, which may not see what a WRITE takes
  // (MemoryRange::cpu_visible). The memory of a SEND is always visible.
  if (from.opcode == Opcode::kSend && length_bytes <= inline_bytes_) to.send_flags |= IBV_SEND_INLINE;
  if (IsAtomic(from.opcode)) [[unlikely]] {
    to.wr.atomic = {.remote_addr = from.remote_address,
                    .compare_add = from.compare_add,
                    .swap = from.opcode == Opcode::kCompareSwap ? from.swap : 0,
                    .rkey = from.rkey};
  } else if (from.opcode != Opcode::kSend) {
    to.wr.rdma = {.remote_addr = from.remote_address, .rkey = from.rkey};
  } else if (from.rkey != 0) {
    to.opcode = IBV_WR_SEND_WITH_INV;
    to.invalidate_rkey = from.rkey;
  }
  if (sink.number != VerbsSinks::kNone) sges->lkey = sink.lkey;
  return {.wr_id = from.wr_id, .sink = sink.number, .opcode = from.opcode, .signaled = from.signaled};
}

VerbsSendRing::Entry VerbsSendQueue::TranslateGrant(size_t index, ibv_send_wr& to) {
  VerbsSendRing::Entry entry;
  grants_.Fill(index, to, entry);
  if (!entry.signaled && ++unsignaled_grants_ >= grants_.signal_interval()) {
    entry.signaled = true;
    to.send_flags |= IBV_SEND_SIGNALED;
  }
  return entry;
}

VerbsSendRing::Entry VerbsSendQueue::TranslateCopied(size_t index, ibv_send_wr& to) {
  copied_.Fill(index, to, chain_sges_.emplace_back());
  const bool signaled = ++unsignaled_copied_ >= copied_.signal_interval();
  if (signaled) to.send_flags |= IBV_SEND_SIGNALED;
  return {.kind = VerbsSendRing::Kind::kCopied, .signaled = signaled};
}

// --- Completing

bool VerbsSendQueue::OnCompletion(const ibv_wc& wc, uint32_t number, Completion& out) {
  if (!sends_.Outstanding(number)) return false;
  if (all_signaled_) {
    OnUnorderedCompletion(wc, number);
    return false;
  }
  const bool ok = wc.status == IBV_WC_SUCCESS;
  const VerbsSendRing::Entry done = sends_.at(number);
  const bool of_caller = done.kind == VerbsSendRing::Kind::kCaller;
  const bool reported = of_caller && (done.signaled || !ok);
  // The requests before it were not signaled and have succeeded. If this completion goes to the caller,
  // that says so. If not, another completion of the caller's may follow, or the end.
  while (sends_.oldest() != number + 1) {
    const VerbsSendRing::Entry retired = sends_.Retire();
    if (!reported && retired.kind == VerbsSendRing::Kind::kCaller) {
      unreported_.push_back({retired.wr_id, retired.opcode});
    }
  }
  if (reported) unreported_.clear();
  if (!ok) OnFailed(done, ToCompletionStatus(wc.status));
  if (grants_.queued() != 0 || !waiting_.empty()) endpoint_.ScheduleOnce();  // There are places now.
  if (endpoint_.disconnected() && sends_.callers() == 0) FlushUnreportedAndWaiting();
  out = {.wr_id = done.wr_id,
         .qp_num = endpoint_.current_qp_num(),
         .status = ToCompletionStatus(wc.status),
         .opcode = done.opcode};
  switch (done.kind) {
    case VerbsSendRing::Kind::kCaller:
      return reported;
    case VerbsSendRing::Kind::kInvalidate:
      grants_.OnInvalidated(done.window, ok);
      if (!ok) {
        endpoint_.OnFailedRevocation(done.wr_id);
        return false;
      }
      out.opcode = Opcode::kRevoke;
      return true;
    default:
      return false;
  }
}

// Most that fail have only been flushed by what failed before them.
void VerbsSendQueue::OnFailed(const VerbsSendRing::Entry& entry, CompletionStatus status) {
  const bool first = endpoint_.state() != State::kError;
  switch (entry.kind) {
    case VerbsSendRing::Kind::kCaller:
      if (first) endpoint_.OnFailedRequest();  // The completion reports the reason.
      return;
    case VerbsSendRing::Kind::kCopied:
      // Flushed, it has not failed itself: an event follows that says why. Otherwise the reason is here, also
      // if receives were flushed before.
      if (status == CompletionStatus::kFlushed) {
        if (first) endpoint_.OnFailedRequest();
        return;
      }
      return endpoint_.Fail(absl::UnavailableError(
          absl::StrCat("peer ", endpoint_.peer(), ": a SEND that was copied failed: ", Describe(status))));
    default:
      if (!first) return;
      return endpoint_.Fail(absl::InternalError(absl::StrCat(
          "peer ", endpoint_.peer(), ": ", entry.kind == VerbsSendRing::Kind::kBind ? "BIND_MW" : "LOCAL_INV",
          " of a grant failed: ", Describe(status), ": was its region deregistered too early?")));
  }
}

void VerbsSendQueue::OnUnorderedCompletion(const ibv_wc& wc, uint32_t number) {
  const CompletionStatus status = ToCompletionStatus(wc.status);
  sends_.Complete(number, status);
  if (wc.status != IBV_WC_SUCCESS) OnFailed(sends_.at(number), status);
  DeliverInOrder();
}

// siw completes a SEND before the READ that was posted before it. So each completion waits here for those
// before it, and an unsignaled one for the next signaled one. No request of a grant is among them, see
// has_windows(), and no copied SEND, see PostsInline().
void VerbsSendQueue::DeliverInOrder() {
  uint32_t deliver_end = sends_.oldest();
  for (uint32_t next = deliver_end; sends_.Outstanding(next) && sends_.at(next).completed; ++next) {
    const VerbsSendRing::Entry& entry = sends_.at(next);
    if (entry.signaled || entry.status != CompletionStatus::kSuccess) deliver_end = next + 1;
  }
  while (sends_.oldest() != deliver_end && !keeps_sink_) {
    VerbsSendRing::Entry& oldest = sends_.at(sends_.oldest());
    if (!EndSink(std::exchange(oldest.sink, VerbsSinks::kNone))) {
      keeps_sink_ = true;
      oldest.status = CompletionStatus::kFlushed;  // For FlushOutstanding(), as those behind it.
      return;
    }
    const VerbsSendRing::Entry entry = sends_.Retire();
    if (entry.kind != VerbsSendRing::Kind::kCaller) continue;
    if (!entry.signaled && entry.status == CompletionStatus::kSuccess) continue;
    endpoint_.Deliver({.wr_id = entry.wr_id, .status = entry.status, .opcode = entry.opcode});
  }
}

// --- Ending

bool VerbsSendQueue::PostDrain(ibv_qp* qp) {
  if (sends_.callers() == 0) FlushUnreportedAndWaiting();  // Else they follow the last one of the caller's.
  if (qp == nullptr || !sends_.EndsSilently()) return true;
  const uint32_t number =
      sends_.Push({.opcode = Opcode::kWrite, .kind = VerbsSendRing::Kind::kDrain, .signaled = true});
  ibv_send_wr drain = {};
  drain.wr_id = VerbsCompletionQueue::WorkRequestId(token_, /*receive=*/false, number);
  drain.opcode = IBV_WR_RDMA_WRITE;  // It has no bytes. A queue pair in error executes nothing.
  drain.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp, &drain, &bad) == 0) return true;
  sends_.Unpush(1);
  return false;
}

// After Disconnect() no signaled request may follow these, and the caller waits for the last of them. Their
// completions say flushed, which promises nothing about the peer.
void VerbsSendQueue::FlushUnreported() {
  for (const Unreported& unreported : std::exchange(unreported_, {}))
    endpoint_.DeliverFlushed(unreported.wr_id, unreported.opcode);
}

// No request of the caller's is outstanding, so these are the next ones in order.
void VerbsSendQueue::FlushUnreportedAndWaiting() {
  FlushUnreported();
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    endpoint_.DeliverFlushed(waiting.request.wr_id, waiting.request.opcode);
  }
}

void VerbsSendQueue::FlushOutstanding() {
  FlushUnreported();
  while (!sends_.empty()) {
    const VerbsSendRing::Entry entry = sends_.Retire();
    if (entry.kind == VerbsSendRing::Kind::kCaller) {
      // It may have completed, but after one that did not.
      const CompletionStatus status =
          entry.completed && entry.signaled ? entry.status : CompletionStatus::kFlushed;
      endpoint_.Deliver({.wr_id = entry.wr_id, .status = status, .opcode = entry.opcode});
    }
    if (entry.kind == VerbsSendRing::Kind::kInvalidate)
      endpoint_.DeliverFlushed(entry.wr_id, Opcode::kRevoke);
  }
  FlushUnreportedAndWaiting();
}

}  // namespace hawser::fabric
