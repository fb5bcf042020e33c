#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_ROUTE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_ROUTE_H_

#include <cstddef>
#include <string>

#include "hawser/base/socket_address.h"

// Which RDMA device a connection takes, asked of the kernel's tables and not of librdmacm, which would open
// all of them.
// Thread:   any. Does not block.
namespace hawser::fabric {

// The device, as `ibv_devices` names it, on whose network interface `local` is; empty if there is none.
// `sysfs`: where that is mounted.
std::string VerbsDeviceOf(const SocketAddress& local, const std::string& sysfs = "/sys");

// How many devices there are.
size_t VerbsDeviceCount(const std::string& sysfs = "/sys");

// The address that this machine sends from to `remote`, by its routing table, with port 0; AF_UNSPEC: no
// route.
SocketAddress RouteSource(const SocketAddress& remote);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_ROUTE_H_
