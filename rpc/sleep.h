#ifndef HAWSER_RPC_SLEEP_H_
#define HAWSER_RPC_SLEEP_H_

// A handler that waits, and then works on a thread that it may block (rpc/executor.h):
//
//   hawser::Task ReadSlowly(hawser::DeferredCall call, uint64_t number, Pages::ReadResults::Builder reply) {
//     absl::Status slept = co_await hawser::Sleep(call.context(), absl::Milliseconds(20));
//     if (!slept.ok()) co_return slept;
//     absl::Status scheduled = co_await executor_.Schedule();
//     if (!scheduled.ok()) co_return scheduled;
//     co_return ReadFromDisk(number, reply);  // On a thread of the executor, which it may block.
//   }

#include <coroutine>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/rpc/server_context.h"

namespace hawser {

namespace internal {
class Alarm;
}

// A coroutine of a handler waits, and holds no thread meanwhile. The result is OK after the time, which is at
// once if it is not positive. It is Cancelled as soon as the caller stops waiting: it cancels, its deadline
// passes, or its connection is lost.
// Thread:   the coroutine is resumed on the thread that drives the poller of the handler's connection, which
//           it must not block.
//           When the connection ends, also because the channel or server of its service is destroyed, the
//           coroutine is resumed: so a service outlives its calls that are not answered yet.
// Lifetime: the call has not finished. A coroutine that is destroyed meanwhile is not resumed; destroy it
//           where it cannot be resumed at that moment, as with a PendingCall.
class [[nodiscard]] Sleep {
 public:
  [[nodiscard]] Sleep(ServerContext& context, absl::Duration time) : context_(context), time_(time) {}
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;
  ~Sleep();

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> waiting);
  absl::Status await_resume() const;

 private:
  ServerContext& context_;
  const absl::Duration time_;
  std::shared_ptr<internal::Alarm> alarm_;
  bool is_cancelled_ = false;
};

}  // namespace hawser

#endif  // HAWSER_RPC_SLEEP_H_
