#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "hawser/bench/peers/peer.h"

namespace hawser::bench::peers {

std::string MakePayload(size_t bytes) {
  std::string payload(bytes, 'x');
  payload.front() = 'a';
  payload.back() = 'p';
  return payload;
}

void CheckEcho(const Load& load, size_t bytes, uint8_t first, uint8_t last) {
  if (bytes != load.bytes) Die(absl::StrCat("a reply has ", bytes, " bytes, the request ", load.bytes));
  if (last != 'p' || (bytes > 1 && first != 'a')) {
    Die(absl::StrCat("a reply of ", bytes, " bytes begins with ", first, " and ends with ", last));
  }
}

void CheckEcho(const Load& load, const void* reply, size_t bytes) {
  const auto* at = static_cast<const uint8_t*>(reply);
  CheckEcho(load, bytes, bytes == 0 ? 0 : at[0], bytes == 0 ? 0 : at[bytes - 1]);
}

void Die(const std::string& what) {
  fprintf(stderr, "bench: peers: %s\n", what.c_str());
  // Not exit(): the destructors of a system's globals wait for threads, and this may be one of them.
  fflush(stdout);
  _exit(1);
}

void KeepFreedPages() {
  // M_MMAP_THRESHOLD cannot exceed 32 MiB. The arenas of other threads than the first unmap what they grow
  // by.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_ARENA_MAX, 1);
}

}  // namespace hawser::bench::peers
