#include "hawser/rpc/wire/landing.h"

#include <string.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hawser::internal {

absl::StatusOr<absl::Span<uint8_t>> Land(const transport::IncomingMessage& reply, capnp::Data::Reader value) {
  const transport::Landing landing = reply.landing();
  if (landing.length_bytes == 0) {
    return absl::FailedPreconditionError("Reply::Land(): the call has no ReceiveInto()");
  }
  const uint64_t offset =
      reinterpret_cast<uint64_t>(value.begin()) - reinterpret_cast<uint64_t>(landing.address);
  if (offset < landing.length_bytes && value.size() <= landing.length_bytes - offset) {
    return absl::Span<uint8_t>(landing.address + offset, value.size());
  }
  if (!landing.cpu_visible) {
    return absl::FailedPreconditionError(
        absl::StrCat("Reply::Land(): the value of ", value.size(),
                     " bytes came in memory of the pool, and the processor does not see the memory of "
                     "ReceiveInto() (MemoryRange::cpu_visible), so nothing is copied there"));
  }
  if (const size_t landed = reply.landed().size(); landed != 0) {
    return absl::FailedPreconditionError(absl::StrCat("Reply::Land(): another part of the response, of ",
                                                      landed,
                                                      " bytes, has landed in the memory of ReceiveInto()"));
  }
  if (value.size() > landing.length_bytes) {
    return absl::OutOfRangeError(absl::StrCat("Reply::Land(): the value has ", value.size(),
                                              " bytes, the memory of ReceiveInto() ", landing.length_bytes));
  }
  if (value.size() != 0) memcpy(landing.address, value.begin(), value.size());
  return absl::Span<uint8_t>(landing.address, value.size());
}

}  // namespace hawser::internal
