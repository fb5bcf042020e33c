#ifndef HAWSER_RPC_FIRST_OF_H_
#define HAWSER_RPC_FIRST_OF_H_

// A hedged call, which asks a second server if the first one is slow or has failed:
//
//   hawser::Task ReadHedged(hawser::DeferredCall call, uint64_t number, Pages::ReadResults::Builder reply) {
//     const hawser::CallOptions options = hawser::CallOptions::For(call.context());
//     hawser::FirstOf<Pages::ReadResults> first;
//     first.Add(SendRead(left_, number, options));
//     if (!co_await first.Within(kHedgeAfter)) first.Add(SendRead(right_, number, options));
//     auto page = co_await first.Result();
//     if (!page.ok()) co_return page.status();
//     reply.setPage((*page)->getPage());
//     co_return absl::OkStatus();
//   }

#include <coroutine>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/rpc/call.h"
#include "hawser/rpc/client/first_result.h"

namespace hawser {

// The first reply of several calls that ask the same, for coroutines. Its end cancels the calls that are
// still under way.
// Thread:   that of the coroutine, one at a time. It is resumed where a callback of Then() would run, of any
//           of the calls, and after the time of Within() on the poller of the call that was added first.
// Lifetime: a coroutine that is destroyed while it waits is not resumed. Destroy it where it cannot be
//           resumed at that moment, as with a PendingCall.
template <typename Results>
class [[nodiscard]] FirstOf {
  class Waiter {
   public:
    Waiter(std::shared_ptr<internal::FirstResult> first, absl::Duration time)
        : first_(std::move(first)), time_(time) {}
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    ~Waiter() {
      if (waits_) first_->Abandon();
    }

    bool await_ready() const { return time_ <= absl::ZeroDuration() || first_->IsDecided(); }
    bool await_suspend(std::coroutine_handle<> waiting) {
      waits_ = true;
      return first_->Suspend(waiting, time_);
    }

   protected:
    void Resumed() { waits_ = false; }

    const std::shared_ptr<internal::FirstResult> first_;

   private:
    const absl::Duration time_;
    bool waits_ = false;
  };

  class WithinWaiter final : public Waiter {
   public:
    using Waiter::Waiter;
    bool await_resume() {
      this->Resumed();
      return this->first_->has_reply();
    }
  };

  class ResultWaiter final : public Waiter {
   public:
    explicit ResultWaiter(std::shared_ptr<internal::FirstResult> first)
        : Waiter(std::move(first), absl::InfiniteDuration()) {}
    absl::StatusOr<Reply<Results>> await_resume() {
      this->Resumed();
      internal::CallResult result = this->first_->Take();
      return PendingCall<Results>::Typed(std::move(result.message), result.limits);
    }
  };

 public:
  FirstOf() = default;
  FirstOf(const FirstOf&) = delete;
  FirstOf& operator=(const FirstOf&) = delete;
  ~FirstOf() {
    for (PendingCall<Results>& call : calls_) call.Cancel();
  }

  // Takes the result of `call`.
  void Add(PendingCall<Results> call) {
    call.Take();
    calls_.push_back(std::move(call));
    first_->Add(calls_.back().call_);
  }

  // bool has_reply = co_await first.Within(time): true as soon as a reply is there; false after `time`, or as
  // soon as every call that was added has failed. At once if `time` is not positive.
  WithinWaiter Within(absl::Duration time) { return WithinWaiter(first_, time); }

  // absl::StatusOr<Reply<Results>> reply = co_await first.Result(): the first reply or, once every call has
  // failed, the error of the one that failed last. FailedPrecondition: no call was added, or the result was
  // taken before.
  ResultWaiter Result() { return ResultWaiter(first_); }

 private:
  const std::shared_ptr<internal::FirstResult> first_ = std::make_shared<internal::FirstResult>();
  std::vector<PendingCall<Results>> calls_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_FIRST_OF_H_
