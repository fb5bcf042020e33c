#ifndef HAWSER_BASE_CHECK_H_
#define HAWSER_BASE_CHECK_H_

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// HAWSER_CHECK(condition, pieces...): an invariant of our own code. If `condition` is false, the process
// prints one line with the place, the condition and the pieces, joined as absl::StrCat() joins them, and
// aborts:
//
//   HAWSER_CHECK(id.slot < slots_.size(), "slot ", id.slot, " of ", slots_.size(), ", connection to ", peer);
//
// It is on in every build: what it costs is a branch, since the pieces are evaluated only when it fails.
// It is never for what a peer, a device or the input of a program can cause; those get an absl::Status. Some
// rules of rpc/*.h are invariants, too, which only a mistake in the code of a program breaks, such as Send()
// twice. docs/guide.md, "What ends the process", lists all of them.
#define HAWSER_CHECK(condition, ...)                                                  \
  do {                                                                                \
    if (!(condition)) [[unlikely]] {                                                  \
      ::hawser::internal::CheckFailed(__FILE__, __LINE__, #condition,                 \
                                      ::absl::StrCat("" __VA_OPT__(, ) __VA_ARGS__)); \
    }                                                                                 \
  } while (false)

// HAWSER_SUBTRACT(count, amount): count -= amount, for a counter that must not go below 0. If it would, the
// process aborts likewise: "CHECK failed: held_bytes_ >= bytes: 4096 >= 8192".
#define HAWSER_SUBTRACT(count, amount) \
  ::hawser::internal::Subtract(count, amount, __FILE__, __LINE__, #count " >= " #amount)

namespace hawser::internal {

[[noreturn, gnu::cold]] void CheckFailed(const char* file, int line, const char* condition,
                                         absl::string_view values);

// Its own function, so that Subtract() has no room on its stack for the text.
template <typename Count>
[[noreturn, gnu::cold, gnu::noinline]] void CannotSubtract(Count count, Count amount, const char* file,
                                                           int line, const char* condition) {
  CheckFailed(file, line, condition, absl::StrCat(count, " >= ", amount));
}

template <typename Count>
void Subtract(Count& count, std::type_identity_t<Count> amount, const char* file, int line,
              const char* condition) {
  if (count < amount) [[unlikely]]
    CannotSubtract<Count>(count, amount, file, line, condition);
  count -= amount;
}

}  // namespace hawser::internal

#endif  // HAWSER_BASE_CHECK_H_
