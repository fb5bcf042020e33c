#ifndef HAWSER_TOOLS_DOCTOR_ROUTE_H_
#define HAWSER_TOOLS_DOCTOR_ROUTE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/transport/uri.h"

// What the kernel says of the way to an address, before anything of Hawser is involved.
namespace hawser::doctor {

struct Route {
  SocketAddress source;  // From which it would go out; the port means nothing.
  std::string netdev;    // That has `source`; "": none was found.
};

// Looks it up; sends nothing. Unavailable: no route leads there.
absl::StatusOr<Route> FindRoute(const SocketAddress& address);

// Connects over TCP, and closes at once. Unavailable: connect(2) failed, with the reason of its errno, or no
// peer answered in time.
absl::Status TryTcp(const SocketAddress& address, absl::Duration timeout);

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_ROUTE_H_
