#ifndef EXAMPLES_WORKER_H_
#define EXAMPLES_WORKER_H_

#include <coroutine>

namespace examples {

// The return type of a detached coroutine: it starts at once, nothing waits for it, and its frame is
// destroyed when it ends. It can await calls, so ten lines that read from top to bottom keep one call in
// flight, without a thread of their own:
//
//   Worker Echo(EchoStub echo, std::atomic<int>* left, absl::BlockingCounter* done) {
//     while (left->fetch_sub(1) > 0) {
//       auto call = echo.Echo();
//       call.request().setMessage("hello");
//       auto sent = call.Send();
//       auto reply = co_await std::move(sent);   // From here on it runs on the poller of its channel.
//     }
//     done->DecrementCount();
//   }
//
// Parameters must be values, or pointers to objects that live until `done`, because the frame outlives the
// caller.
struct Worker {
  struct promise_type {
    Worker get_return_object() const { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const {}
    [[noreturn]] void unhandled_exception() const {
      throw;
    }  // Ends the process: no caller could catch the exception.
  };
};

}  // namespace examples

#endif  // EXAMPLES_WORKER_H_
