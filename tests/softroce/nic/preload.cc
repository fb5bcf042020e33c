// For LD_PRELOAD: a program that opens libibverbs or librdmacm, as Hawser does
// (transport/fabric/verbs/library.cc), gets libnic.so, which is beside this library, instead. So programs
// behave, as they are, as on a NIC: tests, what tests start, servers. Without HAWSER_TEST_NIC it does
// nothing. exports.cc says what libnic.so is.
//
// Every program that a test starts loads this, so it needs no other library than libc.

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

using Open = void* (*)(const char*, int);

thread_local bool opening = false;  // libnic.so, which opens the real ones.

void* OpenNic(Open real) {
  Dl_info here;
  char path[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&OpenNic), &here) == 0) abort();
  const int folder = static_cast<int>(strrchr(here.dli_fname, '/') - here.dli_fname);
  snprintf(path, sizeof(path), "%.*s/libnic.so", folder, here.dli_fname);
  opening = true;
  void* const library = real(path, RTLD_NOW | RTLD_LOCAL);
  opening = false;
  if (library != nullptr) return library;
  fprintf(stderr, "preload.cc: %s\n", dlerror());
  abort();
}

}  // namespace

extern "C" void* dlopen(const char* name, int flags) {
  const auto real = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "dlopen"));
  const bool ours = name != nullptr && !opening && getenv("HAWSER_TEST_NIC") != nullptr &&
                    (strcmp(name, "libibverbs.so.1") == 0 || strcmp(name, "librdmacm.so.1") == 0);
  return ours ? OpenNic(real) : real(name, flags);
}
