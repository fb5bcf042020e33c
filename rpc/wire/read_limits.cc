#include "hawser/rpc/wire/read_limits.h"

#include <capnp/message.h>

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "hawser/base/option_range.h"

namespace hawser::internal {
namespace {

// The traversal limit that every message has at least: Cap'n Proto's default.
constexpr uint64_t kTraversalBytes = 8 << 20;

}  // namespace

capnp::AnyPointer::Reader Root(transport::IncomingMessage& message, const ReadLimits& limits) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords =
      (message.body_bytes() * limits.traversal_factor + kTraversalBytes) / sizeof(capnp::word);
  options.nestingLimit = limits.nesting_max;
  return message.reader(options).getRoot<capnp::AnyPointer>();
}

absl::Status CheckReadLimits(const ReadLimits& limits, absl::string_view option) {
  return CheckOption(absl::StrCat(option, ".nesting_max"), int64_t{limits.nesting_max}, int64_t{1},
                     int64_t{std::numeric_limits<int>::max()});
}

}  // namespace hawser::internal
