// A library that has the functions of libibverbs and librdmacm that Hawser calls, by their names: those of a
// NicLibrary over the real ones. preload.cc puts it in their place.
//
// The environment chooses what it does:
//   HAWSER_TEST_NIC          the name of a NIC, see nic_behavior.cc
//   HAWSER_TEST_NIC_SEED     of its dice (1)

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "hawser/tests/softroce/nic/nic_behavior.h"
#include "hawser/tests/softroce/nic/nic_library.h"
#include "hawser/transport/fabric/verbs/library.h"

#if !defined(__x86_64__)
#error "for the guest, which is an x86-64"
#endif

// Each function is a jump through a pointer, because a macro that has only the name of a function cannot
// repeat its parameters.
#define HAWSER_EXPORT(name)                                                                      \
  extern "C" __attribute__((visibility("hidden"))) void* hawser_nic_##name;                      \
  void* hawser_nic_##name = nullptr;                                                             \
  asm(".text\n.globl " #name "\n.type " #name ",@function\n" #name ":\n\tjmp *hawser_nic_" #name \
      "(%rip)\n"                                                                                 \
      ".size " #name ", .-" #name "\n");
HAWSER_IBVERBS_FUNCTIONS(HAWSER_EXPORT)
HAWSER_RDMACM_FUNCTIONS(HAWSER_EXPORT)
HAWSER_IBVERBS_OPTIONAL_FUNCTIONS(HAWSER_EXPORT)
HAWSER_RDMACM_OPTIONAL_FUNCTIONS(HAWSER_EXPORT)
#undef HAWSER_EXPORT

namespace hawser::fabric {
namespace {

[[noreturn]] void Fail(const char* why) {
  fprintf(stderr, "HAWSER_TEST_NIC: %s\n", why);
  abort();
}

void* Open(const char* name) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail(dlerror());
  return library;
}

__attribute__((constructor)) void Export() {
  void* const verbs = Open("libibverbs.so.1");
  void* const cm = Open("librdmacm.so.1");
  auto* const real = new VerbsLibrary;
  void* library = verbs;
#define HAWSER_LOAD(name) real->name = reinterpret_cast<decltype(real->name)>(dlsym(library, #name));
  HAWSER_IBVERBS_FUNCTIONS(HAWSER_LOAD)
  HAWSER_IBVERBS_OPTIONAL_FUNCTIONS(HAWSER_LOAD)
  library = cm;
  HAWSER_RDMACM_FUNCTIONS(HAWSER_LOAD)
  HAWSER_RDMACM_OPTIONAL_FUNCTIONS(HAWSER_LOAD)
#undef HAWSER_LOAD
  const char* const name = getenv("HAWSER_TEST_NIC");
  const NicBehavior* const behavior = FindNicBehavior(name != nullptr ? name : "");
  if (behavior == nullptr) Fail("no NIC of that name in nic_behavior.cc");
  // Never destroyed, as the libraries are never closed.
  const char* const seed = getenv("HAWSER_TEST_NIC_SEED");
  const auto* const nic = new NicLibrary(
      *real, {.behavior = *behavior,
              .seed = seed != nullptr ? static_cast<uint32_t>(strtoul(seed, nullptr, 10)) : 1});
#define HAWSER_SET(name) hawser_nic_##name = reinterpret_cast<void*>(nic->library().name);
  HAWSER_IBVERBS_FUNCTIONS(HAWSER_SET)
  HAWSER_RDMACM_FUNCTIONS(HAWSER_SET)
  HAWSER_IBVERBS_OPTIONAL_FUNCTIONS(HAWSER_SET)
  HAWSER_RDMACM_OPTIONAL_FUNCTIONS(HAWSER_SET)
#undef HAWSER_SET
}

}  // namespace
}  // namespace hawser::fabric
