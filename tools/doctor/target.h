#ifndef HAWSER_TOOLS_DOCTOR_TARGET_H_
#define HAWSER_TOOLS_DOCTOR_TARGET_H_

#include <vector>

#include "absl/time/time.h"
#include "hawser/tools/doctor/device.h"
#include "hawser/tools/doctor/finding.h"
#include "hawser/transport/uri.h"

namespace hawser::doctor {

// How far a client on this machine comes with a server: its name is resolved, and then for each of its
// addresses, until one answers: routed; connected, for tcp://; dialed by Hawser with the options that a
// channel has by default, so that the handshake and what it agreed on are those of a program. Sends no call.
// Each address has `timeout` for each step. An address that fails is a problem, or, if a later one answers, a
// warning. auto:// is tried by RDMA, if there is a device, and where that fails by TCP, as a channel does.
// Blocks.
Findings CheckTarget(const transport::Uri& uri, absl::Duration timeout, const std::vector<Device>& devices);

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_TARGET_H_
