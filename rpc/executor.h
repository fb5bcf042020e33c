#ifndef HAWSER_RPC_EXECUTOR_H_
#define HAWSER_RPC_EXECUTOR_H_

// Threads for handlers that block. (rpc/sleep.h opens with a coroutine that moves itself to one.)
//
//   absl::StatusOr<std::unique_ptr<hawser::Executor>> executor = hawser::Executor::Create({.threads = 8});
//   if (!executor.ok()) return executor.status();
//   hawser::ServerOptions options;
//   options.executor = (*executor)->ForHandlers();  // Handlers may block these threads.
//   hawser::Server server(std::move(options));      // Declared after the executor, which outlives it.

#include <coroutine>
#include <cstddef>
#include <functional>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hawser {

// Threads for what would block a poller, and a queue. A server may run all its handlers there. A coroutine
// may run a part of itself there: what follows `co_await executor.Schedule()`, up to its next co_await.
// Thread:   any.
// Lifetime: outlives the server whose handlers it runs. The destructor runs what is queued, and waits for it,
//           so no thread of its own may call it. In a child after fork() it has no threads: nothing runs
//           there, and destroying it leaks it.
class Executor {
 public:
  struct Options {
    int threads = 1;            // 1 to 1024.
    size_t queue_max = 10'000;  // The most that wait for a thread, at least 1.
  };

  // InvalidArgument: an option is out of its range. ResourceExhausted: the system has no thread left.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(const Options& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Queues `work`. False: the queue is full, or this is a child after fork(), and `work` is destroyed. An
  // exception of `work` is logged and dropped. An empty function: true, and nothing runs.
  bool Run(absl::AnyInvocable<void()> work);

  // For ServerOptions::executor. A handler that finds the queue full does not run: its call ends with
  // Unavailable, and WasSent() of that is false.
  std::function<void(absl::AnyInvocable<void()> handler)> ForHandlers();

  class [[nodiscard]] Scheduled {
   public:
    explicit Scheduled(Executor& executor) : executor_(executor) {}
    Scheduled(const Scheduled&) = delete;
    Scheduled& operator=(const Scheduled&) = delete;
    ~Scheduled();

    bool await_ready() const { return false; }
    bool await_suspend(std::coroutine_handle<> waiting);
    absl::Status await_resume();

   private:
    Executor& executor_;
    bool is_queued_ = false;
  };

  // absl::Status scheduled = co_await executor.Schedule(): OK on a thread of the executor. ResourceExhausted:
  // the queue is full; the coroutine goes on at once, where it was. Calls that it makes carry on the trace of
  // what awaited. A coroutine that is destroyed while it is queued is not resumed; one whose turn has come
  // must not be destroyed by another thread.
  Scheduled Schedule() { return Scheduled(*this); }

 private:
  class Threads;
  explicit Executor(Threads* threads) : threads_(threads) {}

  Threads* const threads_;  // Leaked in a child after fork().
};

}  // namespace hawser

#endif  // HAWSER_RPC_EXECUTOR_H_
