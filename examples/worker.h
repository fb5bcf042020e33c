#ifndef EXAMPLES_WORKER_H_
#define EXAMPLES_WORKER_H_

#include <coroutine>

namespace examples {

// The return type of a coroutine that runs by itself: it starts at once, nothing waits for it, and its frame
// is destroyed when it ends. With calls that are awaited in it, ten lines that read from top to bottom keep
// one call in flight, on no thread of their own:
//
//   Worker Echo(EchoStub echo, int* left, absl::BlockingCounter* done) {
//     while ((*left)-- > 0) {
//       auto call = echo.Echo();
//       call.request().setMessage("hello");
//       auto sent = call.Send();
//       auto reply = co_await std::move(sent);   // Goes on from here on the poller's thread.
//     }
//     done->DecrementCount();
//   }
//
// Parameters must be values, or pointers to what lives until `done`: the frame outlives the caller.
struct Worker {
  struct promise_type {
    Worker get_return_object() const { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const {}
    [[noreturn]] void unhandled_exception() const {
      throw;
    }  // Out of the poller: there is nobody to catch it.
  };
};

}  // namespace examples

#endif  // EXAMPLES_WORKER_H_
