#ifndef HAWSER_BASE_STATE_MACHINE_H_
#define HAWSER_BASE_STATE_MACHINE_H_

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"

// How a state machine that is a table moves. `Machine` has State, whose last value is kImpossible, Event, and
// Next(), which looks into the table.
namespace hawser {
namespace internal {

// Its own function, so that Moved() costs a look at the table and a branch. `whose` by value: what it refers
// to then stays in registers until it is called.
template <typename Whose>
[[noreturn, gnu::cold, gnu::noinline]] void CannotMove(int state, int event, Whose whose, const char* file,
                                                       int line) {
  CheckFailed(file, line, "next state != kImpossible",
              absl::StrCat(whose(), " in state ", state, " met event ", event));
}

}  // namespace internal

// The state that follows `state` at `event`. An impossible one, which only a bug of ours could cause, ends
// the process as a failed HAWSER_CHECK does, with what `whose()` returns ("slot 3 of 32, connection to ..."),
// and both numbers.
template <typename Machine, typename Whose>
typename Machine::State Moved(typename Machine::State state, typename Machine::Event event,
                              const Whose& whose, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  const typename Machine::State next = Machine::Next(state, event);
  if (next == Machine::State::kImpossible) [[unlikely]] {
    internal::CannotMove<Whose>(static_cast<int>(state), static_cast<int>(event), whose, file, line);
  }
  return next;
}

}  // namespace hawser

#endif  // HAWSER_BASE_STATE_MACHINE_H_
