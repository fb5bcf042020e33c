#ifndef HAWSER_RPC_WIRE_LANDING_H_
#define HAWSER_RPC_WIRE_LANDING_H_

#include <capnp/blob.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

// As Reply::Land(), of the memory that was there for `reply`.
absl::StatusOr<absl::Span<uint8_t>> Land(const transport::IncomingMessage& reply, capnp::Data::Reader value);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_LANDING_H_
