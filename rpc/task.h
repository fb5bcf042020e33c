#ifndef HAWSER_RPC_TASK_H_
#define HAWSER_RPC_TASK_H_

// A handler that is a coroutine:
//
//   absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
//                     Pages::ReadResults::Builder reply) override {
//     return ReadLater(context.Defer(), request.getNumber(), reply);
//   }
//   hawser::Task ReadLater(hawser::DeferredCall call, uint64_t number, Pages::ReadResults::Builder reply) {
//     auto read = backend_.Read(hawser::CallOptions::For(call.context()));
//     read.request().setNumber(number);
//     auto page = co_await read.Send();  // Holds no thread meanwhile.
//     if (page.ok()) reply.setPage((*page)->getPage());
//     co_return page.status();
//   }

#include <coroutine>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/wire/exceptions.h"

namespace hawser {

// A handler that is a coroutine. It starts at once, may `co_await` calls, ends with `co_return` of a status,
// and answers its call with that, whatever happens: an exception that leaves it becomes a status as in any
// handler, and a coroutine that is destroyed unfinished answers Internal. So does one that runs off its end
// without co_return if gcc compiled it without sanitizers; in C++ that is undefined, and clang warns of it.
//
// One of its parameters is the DeferredCall, by value. Parameters that are references, and what a lambda
// captures, must outlive the coroutine: pass values.
// With gcc 12 a co_await expression, all of it, makes no lambda that captures something with a destructor,
// and no aggregate that holds such a thing: it is destroyed twice (PR 107288). Name it in a statement before.
// Nor is a co_await an operand of ?:, whose result is destroyed twice. CallOptions in braces hold nothing.
// The awaitables of Hawser, and what generated code returns, are no aggregates.
//   co_await pool.Run([name] { ... });                         // Wrong: `name` is destroyed twice.
//   auto work = [name] { ... };
//   co_await pool.Run(std::move(work));
// What a handler waits for besides calls: Sleep (rpc/sleep.h), FirstOf (rpc/first_of.h), Executor::Schedule()
// (rpc/executor.h).
// Thread:   up to the first co_await that of the handler, then the one that resumes it: after a call the
//           thread that drives the poller of its channel (PendingCall::Then()), which it must not block.
// Lifetime: the coroutine destroys itself at its end. The answer leaves after its locals are destroyed.
class Task {
 public:
  class promise_type;

  // What the handler returns to the server; the answer comes later.
  operator absl::Status() const { return absl::OkStatus(); }  // NOLINT(google-explicit-constructor)

 private:
  Task() = default;
};

class Task::promise_type {
 public:
  // `arguments`: the coroutine's own copies of its parameters.
  template <typename... Arguments>
  explicit promise_type(Arguments&... arguments) {
    (Find(arguments), ...);
  }
  promise_type(const promise_type&) = delete;
  promise_type& operator=(const promise_type&) = delete;

  Task get_return_object() { return Task(); }
  std::suspend_never initial_suspend() noexcept { return {}; }
  std::suspend_never final_suspend() noexcept {
    if (!has_ended_ && *call_) [[unlikely]]
      status_ = internal::StatusWithoutReturn(call_->context());
    call_->Finish(std::move(status_));
    return {};
  }
  void return_value(absl::Status status) {
    status_ = std::move(status);
    has_ended_ = true;
  }
  void unhandled_exception() {
    has_ended_ = true;
    if (*call_) {
      status_ = internal::StatusOfHandlersException(call_->context());
    } else {
      internal::ReportException("a hawser::Task", "whose DeferredCall was finished or moved");
    }
  }

 private:
  void Find(DeferredCall& call) { call_ = &call; }
  template <typename Other>
  void Find(Other&) {}

  DeferredCall* call_ = nullptr;
  absl::Status status_;
  bool has_ended_ = false;  // By co_return, or an exception. A status from the start would be allocated.
};

}  // namespace hawser

// Here the types of the parameters are as they were declared: a DeferredCall by reference would be gone at
// the first co_await.
template <typename... Arguments>
struct std::coroutine_traits<hawser::Task, Arguments...> {
  static_assert(
      (0 + ... + (std::is_same_v<Arguments, hawser::DeferredCall> ? 1 : 0)) == 1,
      "a coroutine that returns hawser::Task has one parameter of type hawser::DeferredCall, by value");
  using promise_type = hawser::Task::promise_type;
};

#endif  // HAWSER_RPC_TASK_H_
