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

capnp::ReaderOptions OptionsOf(const transport::IncomingMessage& message, const ReadLimits& limits) {
  return {.traversalLimitInWords =
              (message.body_bytes() * limits.traversal_factor + kTraversalBytes) / sizeof(capnp::word),
          .nestingLimit = limits.nesting_max};
}

}  // namespace

capnp::AnyPointer::Reader Root(transport::IncomingMessage& message, const ReadLimits& limits) {
  return message.reader(OptionsOf(message, limits)).getRoot<capnp::AnyPointer>();
}

capnp::_::StructReader ReadRootStruct(transport::IncomingMessage& message, const ReadLimits& limits) {
  return message.ReadRootStruct(OptionsOf(message, limits));
}

absl::Status CheckReadLimits(const ReadLimits& limits, absl::string_view option) {
  return CheckOption(absl::StrCat(option, ".nesting_max"), int64_t{limits.nesting_max}, int64_t{1},
                     int64_t{std::numeric_limits<int>::max()});
}

}  // namespace hawser::internal
