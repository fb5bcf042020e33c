#include "hawser/rpc/server_call.h"

#include <algorithm>
#include <utility>

#include "hawser/rpc/background.h"
#include "hawser/rpc/exceptions.h"
#include "hawser/rpc/untyped_call.h"

namespace hawser::internal {

// What an executor gets: the duty to run the handler. One that drops it unrun answers the call nevertheless.
class ServerCall::Ticket {
 public:
  explicit Ticket(ServerCall* call) : call_(call) {}
  Ticket(Ticket&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  ~Ticket() {
    if (call_ != nullptr)
      call_->Finish(absl::UnavailableError("the server's executor did not run the handler"));
  }
  void operator()() { std::exchange(call_, nullptr)->RunHandler(); }

 private:
  ServerCall* call_;
};

void ServerCall::Start(transport::ExchangeId id, const MethodTable::Entry& entry,
                       transport::IncomingMessagePtr request, int64_t deadline_ns) {
  id_ = id;
  entry_ = &entry;
  request_ = request.get();
  own_request_ = std::move(request);
  deadline_ns_ = deadline_ns;
  refs_.store(1, std::memory_order_relaxed);
  const auto& executor = connection_.serving().executor;
  if (!executor) return RunHandler();
  CallUser("the executor, given", entry.method->name, [&] { executor(Ticket(this)); });
}

void ServerCall::Reset() {
  request_ = nullptr;
  own_request_.reset();
  kept_request_.reset();
  reply_.reset();
  if (!status_.ok()) status_ = absl::OkStatus();
  deferred_ = false;
  answered_.store(false, std::memory_order_relaxed);
  cancelled_.store(false, std::memory_order_relaxed);
  ForgetOnCancel();
}

// ---- The handler, and how it ends.

void ServerCall::RunHandler() {
  absl::Status status = CatchExceptions([&] { return entry_->handler(entry_->self, context_); });
  if (!deferred_) return Finish(std::move(status));
  if (!status.ok()) FinishOnce(std::move(status));
  Unref();
}

void ServerCall::Finish(absl::Status status) {
  if (connection_.poller().Held()) {
    connection_.Answer(*this, status);
    return connection_.Recycle(*this);
  }
  ForgetOnCancel();
  status_ = std::move(status);
  PostKeeping(connection_.runtime(), connection_.poller(), &answer_item_);
}

void ServerCall::Defer() {
  deferred_ = true;
  refs_.store(2, std::memory_order_relaxed);
}

void ServerCall::FinishDeferred(absl::Status status) {
  FinishOnce(std::move(status));
  Unref();
}

// A handler that defers and returns an error answers twice; the first counts.
void ServerCall::FinishOnce(absl::Status status) {
  if (answered_.exchange(true, std::memory_order_acq_rel)) return;
  ForgetOnCancel();
  status_ = std::move(status);
  refs_.fetch_add(1, std::memory_order_relaxed);
  PostKeeping(connection_.runtime(), connection_.poller(), &answer_item_);
}

void ServerCall::RunAnswer() {
  connection_.Answer(*this, status_);
  Unref();
}

void ServerCall::Unref() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (connection_.poller().Held()) return connection_.Recycle(*this);
  PostKeeping(connection_.runtime(), connection_.poller(), &recycle_item_);
}

void ServerCall::RunRecycle() { connection_.Recycle(*this); }

// ---- Request and reply.

transport::OutgoingMessage& ServerCall::reply() {
  if (reply_ == nullptr) reply_ = connection_.poller().messages().NewOutgoing();
  return *reply_;
}

transport::OutgoingMessagePtr ServerCall::TakeReply() {
  reply();
  return std::move(reply_);
}

std::shared_ptr<const void> ServerCall::KeepRequest() {
  if (kept_request_ == nullptr) kept_request_ = std::move(own_request_);
  return kept_request_;
}

// ---- Deadline and cancellation.

absl::Duration ServerCall::TimeRemaining() const {
  if (cancelled_.load(std::memory_order_acquire)) return absl::ZeroDuration();
  if (deadline_ns_ == transport::kNever) return absl::InfiniteDuration();
  return absl::Nanoseconds(std::max<int64_t>(0, deadline_ns_ - connection_.poller().environment().NowNs()));
}

// A poller that is busy with this very handler hears of nothing meanwhile, but the clock goes on.
bool ServerCall::cancelled() const { return TimeRemaining() == absl::ZeroDuration(); }

void ServerCall::OnCancel(absl::AnyInvocable<void()> callback) {
  {
    absl::MutexLock lock(&cancel_mutex_);
    if (!cancelled_.load(std::memory_order_relaxed)) {
      on_cancel_ = std::move(callback);
      has_on_cancel_.store(true, std::memory_order_relaxed);
      return;
    }
  }
  CallUser("the OnCancel() callback of", entry_->method->name, [&] { callback(); });
}

void ServerCall::Cancel() {
  absl::AnyInvocable<void()> callback;
  const char* const name = entry_->method->name;
  {
    absl::MutexLock lock(&cancel_mutex_);
    cancelled_.store(true, std::memory_order_release);
    callback = std::exchange(on_cancel_, nullptr);
  }
  // It may finish the call, which is then gone.
  if (callback) CallUser("the OnCancel() callback of", name, [&] { callback(); });
}

void ServerCall::ForgetOnCancel() {
  if (!has_on_cancel_.load(std::memory_order_relaxed)) return;
  has_on_cancel_.store(false, std::memory_order_relaxed);
  absl::AnyInvocable<void()> callback;  // Destroyed after the lock.
  absl::MutexLock lock(&cancel_mutex_);
  callback = std::exchange(on_cancel_, nullptr);
}

}  // namespace hawser::internal
