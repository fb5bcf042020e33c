#include "hawser/base/violation.h"

#include <string>

#include "absl/strings/cord.h"

namespace hawser {
namespace {

constexpr absl::string_view kUrl = "type.hawser/violation";

constexpr absl::string_view kNames[] = {"greeting", "handshake", "frame",         "message", "slot",
                                        "role",     "control",   "memory access", "limit",   "TLS"};
static_assert(sizeof(kNames) / sizeof(kNames[0]) == kViolationCount);
static_assert(static_cast<size_t>(Violation::kTls) + 1 == kViolationCount);

}  // namespace

absl::string_view NameOf(Violation violation) { return kNames[static_cast<size_t>(violation)]; }

absl::Status ViolationError(Violation violation, absl::string_view text) {
  absl::Status status = absl::DataLossError(text);
  SetViolation(status, violation);
  return status;
}

void SetViolation(absl::Status& status, Violation violation) {
  status.SetPayload(kUrl, absl::Cord(NameOf(violation)));
}

std::optional<Violation> ViolationOf(const absl::Status& status) {
  const absl::optional<absl::Cord> name = status.GetPayload(kUrl);
  if (!name.has_value()) return std::nullopt;
  for (size_t i = 0; i < kViolationCount; ++i) {
    if (*name == kNames[i]) return static_cast<Violation>(i);
  }
  return std::nullopt;
}

void CopyViolation(const absl::Status& from, absl::Status& to) {
  if (const std::optional<Violation> violation = ViolationOf(from)) SetViolation(to, *violation);
}

}  // namespace hawser
