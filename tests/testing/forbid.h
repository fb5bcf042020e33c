#ifndef HAWSER_TESTS_TESTING_FORBID_H_
#define HAWSER_TESTS_TESTING_FORBID_H_

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

namespace hawser {

// From now on `system_call` fails with `error` in this thread and in those that it starts. This cannot be
// undone, so it is for tests that have a program of their own. With `first` the call fails only if that is
// its first argument. False: the kernel refuses.
inline bool Forbid(uint32_t system_call, uint16_t error, std::optional<uint32_t> first = std::nullopt) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | (first.has_value() ? BPF_JEQ : BPF_JGE) | BPF_K, first.value_or(0), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(filter), .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_FORBID_H_
