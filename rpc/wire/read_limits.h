#ifndef HAWSER_RPC_WIRE_READ_LIMITS_H_
#define HAWSER_RPC_WIRE_READ_LIMITS_H_

#include <capnp/any.h>
#include <capnp/layout.h>
#include <capnp/message.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/wire/message.h"

// How much of a received message its reader follows.
namespace hawser::internal {

// The traversal limit that every message has at least: Cap'n Proto's default.
inline constexpr uint64_t kTraversalBytes = 8 << 20;

inline capnp::ReaderOptions ReaderOptionsOf(const transport::IncomingMessage& message,
                                            const ReadLimits& limits) {
  return {.traversalLimitInWords =
              (message.body_bytes() * limits.traversal_factor + kTraversalBytes) / sizeof(capnp::word),
          .nestingLimit = limits.nesting_max};
}

// The root of a received message. Throws kj::Exception on a malformed one.
capnp::AnyPointer::Reader Root(transport::IncomingMessage& message, const ReadLimits& limits);
// The same, as a struct: Struct::Reader(ReadRootStruct(message, limits)).
inline capnp::_::StructReader ReadRootStruct(transport::IncomingMessage& message, const ReadLimits& limits) {
  return message.ReadRootStruct(ReaderOptionsOf(message, limits));
}

// InvalidArgument: one of `limits`, which are those of `option` ("ServerOptions::read"), is out of its range.
absl::Status CheckReadLimits(const ReadLimits& limits, absl::string_view option);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_READ_LIMITS_H_
