#ifndef HAWSER_TESTS_TESTING_DETACHED_H_
#define HAWSER_TESTS_TESTING_DETACHED_H_

#include <coroutine>
#include <exception>

namespace hawser {

// A coroutine that starts at once, is waited for by nothing, and destroys itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_DETACHED_H_
