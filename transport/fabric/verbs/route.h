#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_ROUTE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_ROUTE_H_

#include <cstddef>
#include <string>

#include "hawser/base/socket_address.h"

// Finds the RDMA device of a connection, from the kernel's tables and not from librdmacm, which would open
// all devices.
// Thread:   any. Does not block.
namespace hawser::fabric {

// The device, as `ibv_devices` names it, on whose network interface `local` is; empty if there is none.
// `sysfs`: where that is mounted.
std::string VerbsDeviceOf(const SocketAddress& local, const std::string& sysfs = "/sys");

// The number of devices.
size_t VerbsDeviceCount(const std::string& sysfs = "/sys");

// The address from which this machine sends to `remote`, by its routing table, with port 0; AF_UNSPEC: no
// route.
SocketAddress RouteSource(const SocketAddress& remote);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_ROUTE_H_
