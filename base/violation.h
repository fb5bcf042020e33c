#ifndef HAWSER_BASE_VIOLATION_H_
#define HAWSER_BASE_VIOLATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hawser {

// How a peer broke the protocol, in the order of rpc/PROTOCOL.md, "Violations".
enum class Violation : uint8_t {
  kGreeting,      // Over TCP: what a peer said first is no greeting, or one of another version.
  kHandshake,     // Its private data is no handshake, or one of another version, or out of range.
  kFrame,         // Over TCP: a frame that is malformed, or that nothing allows at this point.
  kMessage,       // A message whose header, table or lengths do not add up.
  kSlot,          // A slot that is not agreed, or is busy; a generation that is not the next.
  kRole,          // A request or a response from the side that does not send these.
  kControl,       // A control message out of order, or an operation of the other side.
  kMemoryAccess,  // A READ or WRITE of what was not granted; an offer of what cannot be READ.
  kLimit,         // A SEND longer than the receive, or without one; too many READs; unacknowledged answers.
  kTls,  // With credentials: no TLS 1.3, or a certificate that is not believed; over RDMA a bad proof.
};
inline constexpr size_t kViolationCount = 10;

// "slot", "memory access".
absl::string_view NameOf(Violation violation);

// A status that has the violation as a payload; ViolationOf() returns it. A status that is made of the code
// and the text of such a one has none.
absl::Status ViolationError(Violation violation, absl::string_view text);  // DataLoss.
void SetViolation(absl::Status& status, Violation violation);
std::optional<Violation> ViolationOf(const absl::Status& status);
// To a status that is made of the text of `from`.
void CopyViolation(const absl::Status& from, absl::Status& to);

}  // namespace hawser

#endif  // HAWSER_BASE_VIOLATION_H_
