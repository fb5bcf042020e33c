#include "hawser/rpc/wire/read_limits.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "hawser/base/option_range.h"

namespace hawser::internal {

capnp::AnyPointer::Reader Root(transport::IncomingMessage& message, const ReadLimits& limits) {
  return message.reader(ReaderOptionsOf(message, limits)).getRoot<capnp::AnyPointer>();
}

absl::Status CheckReadLimits(const ReadLimits& limits, absl::string_view option) {
  return CheckOption(absl::StrCat(option, ".nesting_max"), int64_t{limits.nesting_max}, int64_t{1},
                     int64_t{std::numeric_limits<int>::max()});
}

}  // namespace hawser::internal
