#include "hawser/rpc/client/remote_call.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/base/check.h"
#include "hawser/rpc/client/remote_counts.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/misplaced_wait.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::internal {
namespace {

// A larger range is several work requests, so that others have their turn in between.
constexpr uint64_t kPieceBytesMax = uint64_t{1} << 20;

// What an operation of more pieces had is given back, when its object is kept for another.
constexpr size_t kPiecesKept = 64;

absl::Status Cancelled() { return absl::CancelledError("it was cancelled"); }

absl::string_view NameOf(RemoteCall::Kind kind) {
  switch (kind) {
    case RemoteCall::Kind::kRead:
      return "a READ from";
    case RemoteCall::Kind::kWrite:
      return "a WRITE to";
    case RemoteCall::Kind::kCompareSwap:
      return "a compare-and-swap in";
    case RemoteCall::Kind::kFetchAdd:
      return "a fetch-and-add in";
  }
  return "an operation on";
}

}  // namespace

RemoteCallHandle RemoteCallHandle::Share() const {
  call_->AddRef();
  return RemoteCallHandle(call_);
}

void RemoteCallHandle::Release() {
  RemoteCall* const call = std::exchange(call_, nullptr);
  if (call->Unref()) call->Destroy();
}

RemoteCall::RemoteCall() : deadline_timer_([this] { OnDeadline(); }) {}

RemoteCall::~RemoteCall() = default;

RemoteCallHandle RemoteCall::New(std::shared_ptr<RemoteCarrier> carrier, std::shared_ptr<RemoteTicket> ticket,
                                 Kind what, absl::Span<const RemotePart> parts, absl::Span<uint8_t> local,
                                 int64_t timeout_ns) {
  RemoteCall* call = carrier->poller().Held() ? carrier->TakeKept() : nullptr;
  if (call == nullptr) call = new RemoteCall();
  call->Prepare(std::move(carrier), std::move(ticket), what, parts, local, timeout_ns);
  return RemoteCallHandle(call);
}

void RemoteCall::Prepare(std::shared_ptr<RemoteCarrier> carrier, std::shared_ptr<RemoteTicket> ticket,
                         Kind what, absl::Span<const RemotePart> parts, absl::Span<uint8_t> local,
                         int64_t timeout_ns) {
  refs_.store(1, std::memory_order_relaxed);
  carrier_ = std::move(carrier);
  ticket_ = std::move(ticket);
  local_ = local;
  timeout_ns_ = timeout_ns;
  kind = what;
  impossible_ = SetPieces(parts);
}

// Nothing else knows it, so its mutex guards nothing.
void RemoteCall::Clear() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  carrier_ = nullptr;
  ticket_ = nullptr;
  impossible_ = absl::OkStatus();
  is_direct_ = false;
  bounce_ = {};
  if (pieces.capacity() > kPiecesKept) pieces = {};
  pieces.clear();
  compare_add = swap = 0;
  event_.Reset();
  done_ = dropped_ = cancelled_ = false;
  result_ = absl::OkStatus();
  deadline_ns_ = transport::kNever;
  tries = 0;
}

absl::Status RemoteCall::SetPieces(absl::Span<const RemotePart> parts) {
  const uint64_t size = ticket_->ticket.length;
  uint64_t sum = 0;
  for (const RemotePart& part : parts) {
    if (part.offset > size || part.length > size - part.offset) {
      return absl::OutOfRangeError(absl::StrCat(part.length, " bytes at offset ", part.offset,
                                                " are beyond the ", size, " bytes of the ticket"));
    }
    sum += part.length;  // Does not wrap: each is below 2^32, and there are fewer than 2^32.
  }
  if (sum > transport::kLaneBytesMax) {  // Ranges may overlap.
    return absl::InvalidArgumentError(absl::StrCat("the ranges have ", sum,
                                                   " bytes, and one operation at most ",
                                                   transport::kLaneBytesMax, ": use several"));
  }
  if (sum != local_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ranges have ", sum, " bytes, and the memory here ", local_.size()));
  }
  if (sum == 0) return absl::InvalidArgumentError("the operation has no bytes");
  if (local_.data() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the memory here, of ", sum, " bytes, is null"));
  }
  transport::BufferPool& pool = carrier_->runtime()->buffers();
  uint8_t* memory = local_.data();
  uint32_t lkey = pool.FindRegion(memory, local_.size());
  if (lkey == 0) {
    if (absl::Status found = FindRegistered(); !found.ok()) return found;
    if (use_) lkey = use_.region().lkey();
  }
  is_direct_ = lkey != 0;
  if (!is_direct_) {
    absl::StatusOr<transport::Lease> bounce = pool.Acquire(local_.size());
    if (!bounce.ok()) return bounce.status();
    bounce_ = *std::move(bounce);
    memory = bounce_.data();
    lkey = bounce_.lkey();
    if (kind == Kind::kWrite) memcpy(memory, local_.data(), local_.size());
  }
  for (const RemotePart& part : parts) {
    for (uint64_t at = 0; at < part.length; at += kPieceBytesMax) {
      const uint64_t length = std::min(kPieceBytesMax, part.length - at);
      pieces.push_back({part.offset + at, {memory, static_cast<uint32_t>(length), lkey}});
      memory += length;
    }
  }
  return absl::OkStatus();
}

absl::Status RemoteCall::FindRegistered() {
  transport::UserRegions& regions = carrier_->runtime()->user_regions();
  if (!regions.any()) return absl::OkStatus();
  // The 8 bytes of an atomic are copied: not each device that registers on demand has atomics into it.
  transport::UserRegions::Found found = regions.Find(local_.data(), local_.size(), !is_atomic());
  use_ = std::move(found.use);
  return found.copyable;
}

void RemoteCall::Begin() {
  if (!impossible_.ok()) return EndUnbegun(impossible_);
  transport::Poller& poller = carrier_->poller();
  self_ = Self();
  poller.Held() ? Start() : poller.Post(&start_item_);
}

void RemoteCall::Start() {
  if (cancelled_) return OnEnd(Cancelled());
  if (timeout_ns_ <= 0) {
    return OnEnd(absl::DeadlineExceededError("the deadline had passed when it was to be sent"));
  }
  if (timeout_ns_ != transport::kNever) {
    deadline_ns_ = transport::After(carrier_->poller().NowForDeadlineNs(), absl::Nanoseconds(timeout_ns_));
    if (deadline_ns_ != transport::kNever) carrier_->SetDeadline(*this);
  }
  carrier_->Start(*this);
}

void RemoteCall::OnDeadline() {
  carrier_->Abort(*this, absl::DeadlineExceededError(absl::StrCat(
                             is_counted() ? "it was not complete, or not counted, before the deadline"
                                          : "no completion came before the deadline",
                             carrier_->DescribeSilence(), carrier_->poller().WhyLate(deadline_ns_))));
}

void RemoteCall::EndUnbegun(const absl::Status& why) {
  RemoteCounts::Process().Add(kind, why.code());
  use_ = {};
  const MutexLock lock(mutex_);
  result_ = why;
  done_ = true;
}

// ---- Its result

bool RemoteCall::done() const {
  const MutexLock lock(mutex_);
  return done_;
}

absl::Status RemoteCall::result() const {
  const MutexLock lock(mutex_);
  return result_;
}

void RemoteCall::CheckMayWait() const {
  HAWSER_CHECK(
      !is_direct_ || !transport::Poller::ThisThreadHoldsOne(),
      "a RemoteOperation on registered memory was waited for, or destroyed, in a handler or a callback, "
      "where "
      "it would wait for itself: take its result with Then() or co_await, and keep its memory until then");
}

absl::Status RemoteCall::Wait() {
  CheckMayWait();
  if (done()) return result();
  if (transport::Poller::ThisThreadHoldsOne()) {
    Drop();
    return MisplacedWait("RemoteOperation::Wait()",
                         absl::StrCat(", where everything else on that poller would wait, too; use Then() or "
                                      "co_await",
                                      PartlyDone(), is_counted() ? ", and may have been counted" : ""));
  }
  carrier_->poller().WaitFor(event_);
  return result();
}

void RemoteCall::Then(Callback callback) {
  {
    const MutexLock lock(mutex_);
    callback_ = std::move(callback);
    carrier_->poller().AddAsyncInterest(1);
    if (!done_) return;
  }
  carrier_->poller().Run([self = Self()]() mutable {
    RemoteCarrier& carrier = *self->carrier_;
    carrier.CallBackSoon(std::move(self));
  });
}

void RemoteCall::Cancel() {
  if (done()) return;
  carrier_->poller().Run([self = Self()] {
    // Start() may still wait for its turn on the poller.
    self->cancelled_ = true;
    if (self->self_) self->carrier_->Abort(*self, Cancelled());
  });
}

void RemoteCall::Drop() {
  CheckMayWait();
  Callback unused;  // Destroyed without the lock.
  {
    const MutexLock lock(mutex_);
    dropped_ = true;
    unused = std::exchange(callback_, nullptr);
    if (unused) carrier_->poller().AddAsyncInterest(-1);
    if (done_) return;
  }
  Cancel();
  if (!is_direct_ || done()) return;
  carrier_->poller().WaitFor(event_);
}

void RemoteCall::OnEnd(const absl::Status& status) {
  RemoteCallHandle self = std::move(self_);
  RemoteCounts::Process().Add(kind, status.code());
  if (deadline_ns_ != transport::kNever) carrier_->EndDeadline(*this);
  use_ = {};  // Before the result is there, with which the program may release the memory.
  bool calls_back;
  {
    const MutexLock lock(mutex_);
    if (status.ok() && bounce_ && kind != Kind::kWrite && !dropped_)
      memcpy(local_.data(), bounce_.data(), local_.size());
    result_ = status;
    if (!status.ok()) {
      result_ = absl::Status(status.code(), absl::StrCat(NameOf(kind), " the memory of ",
                                                         carrier_->peer_address(), ": ", status.message()));
      KeepTextHere(result_, "reaching the memory of a server");
    }
    done_ = true;
    calls_back = callback_ != nullptr;
  }
  event_.Set();
  if (calls_back) carrier_->CallBackSoon(std::move(self));
}

void RemoteCall::RunCallback() {
  Callback callback;
  absl::Status result;
  {
    const MutexLock lock(mutex_);
    callback = std::exchange(callback_, nullptr);
    result = result_;
  }
  if (!callback) return;
  CallUser("the callback of an operation on the memory of", carrier_->peer_address(),
           [&] { callback(result); });
  carrier_->poller().AddAsyncInterest(-1);
  // The RemoteOperation may be kept, for Cancel().
  bounce_ = {};
  ticket_ = nullptr;
}

}  // namespace hawser::internal
