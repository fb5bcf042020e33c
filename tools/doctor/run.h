#ifndef HAWSER_TOOLS_DOCTOR_RUN_H_
#define HAWSER_TOOLS_DOCTOR_RUN_H_

#include <optional>

#include "absl/time/time.h"
#include "hawser/transport/uri.h"

namespace hawser::doctor {

// Examines this machine and, if there is one, the way to `target`; prints each finding to stdout as it comes,
// as text or as JSON. Returns whether none is a problem. `timeout`: for each step with each of the server's
// addresses.
bool Run(const std::optional<transport::Uri>& target, absl::Duration timeout, bool json);

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_RUN_H_
