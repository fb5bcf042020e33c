#include "hawser/transport/connection/port.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/base/state_machine.h"
#include "hawser/transport/poller/called_out.h"

namespace hawser::transport {

std::string Port::Name() const {
  return absl::StrCat("connection ", number_, accepted_ ? " of " : " to ", peer_);
}

std::string Port::DescribeSilence(int64_t heard_ns) const {
  const int64_t silent_ns = poller_.now_ns() - std::max(heard_ns, last_receive_ns());
  return absl::StrCat("; nothing has come from it for ",
                      RoughDuration(absl::Nanoseconds(std::max<int64_t>(0, silent_ns))), peer_is_busy_);
}

void Port::Move(ConnectionState::Event event) {
  state_ = Moved<ConnectionState>(state_, event, [this] { return absl::StrCat("connection to ", peer_); });
  carries_traffic_ = state_ == ConnectionState::State::kReady || state_ == ConnectionState::State::kDraining;
}

void Port::Fail(absl::StatusCode code, absl::string_view what) {
  Fail(absl::Status(code, absl::StrCat("peer ", peer_, " ", what)));
}

void Port::Fail(Violation violation, absl::string_view what, absl::StatusCode code) {
  absl::Status why(code, absl::StrCat("peer ", peer_, " ", what));
  SetViolation(why, violation);
  Fail(why);
}

}  // namespace hawser::transport
