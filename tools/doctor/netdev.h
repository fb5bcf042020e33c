#ifndef HAWSER_TOOLS_DOCTOR_NETDEV_H_
#define HAWSER_TOOLS_DOCTOR_NETDEV_H_

#include <string>

#include "hawser/tools/doctor/device.h"
#include "hawser/tools/doctor/system.h"

namespace hawser::doctor {

// The network interface of a port.
struct Netdev {
  std::string name;     // "": none was found, or several that fit equally well.
  bool by_mac = false;  // By its MAC address alone.
};

// Looks, in this order, for the one that the GID table names; that a driver on top of a network interface
// (rxe) names; that has the MAC address that the port's GID or the device's node_guid is made of; that is the
// only one below the device's PCI function. `port`: its GIDs and its link layer have been read. `only_port`:
// the device has no other, so that its node_guid is that of this port.
//
// Older kernels have no interface in the GID table of an iWARP device (config_non_roce_gid_cache()), and
// eRDMA is a PCI function of its own, without an interface. There nothing but the MAC tells two erdma devices
// apart.
Netdev FindNetdev(const System& system, const std::string& device, const Port& port, bool is_iwarp,
                  bool only_port);

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_NETDEV_H_
