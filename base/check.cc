#include "hawser/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace hawser::internal {

void CheckFailed(const char* file, int line, const char* condition, absl::string_view values) {
  std::fprintf(stderr, "hawser: %s:%d: CHECK failed: %s%s%.*s\n", file, line, condition,
               values.empty() ? "" : ": ", static_cast<int>(values.size()), values.data());
  std::abort();
}

}  // namespace hawser::internal
