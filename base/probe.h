#ifndef HAWSER_BASE_PROBE_H_
#define HAWSER_BASE_PROBE_H_

// The header has STAP_PROBEV() only for those that ask for it.
#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

namespace hawser {

// A point of a call at which bpftrace, perf, SystemTap or gdb can look at a running program: USDT, provider
// "hawser". Costs one NOP while no tracer is there. The arguments, at most 12, are numbers and pointers that
// are at hand; what would have to be computed for a probe does not belong here. docs/operating.md lists all
// probes with their arguments.
#define HAWSER_PROBE(name, ...)             \
  do {                                      \
    STAP_PROBEV(hawser, name, __VA_ARGS__); \
    HAWSER_KEEP_THIS_FUNCTION();            \
  } while (false)

// The description of a probe refers to its function from a section that is not loaded. With --gc-sections the
// linker may drop such a function, and then gold (2.40) fails, or it may drop the section that gdb wants to
// see beside the descriptions. A note that is loaded keeps both: 28 bytes.
#define HAWSER_KEEP_THIS_FUNCTION()                   \
  asm volatile(                                       \
      "991:\n"                                        \
      ".pushsection .note.hawser, \"a?\", \"note\"\n" \
      ".balign 4\n"                                   \
      ".long 7, 8, 1\n"                               \
      ".asciz \"hawser\"\n"                           \
      ".balign 4\n"                                   \
      ".long 991b - .\n"                              \
      ".long _.stapsdt.base - .\n"                    \
      ".popsection\n")

}  // namespace hawser

#endif  // HAWSER_BASE_PROBE_H_
