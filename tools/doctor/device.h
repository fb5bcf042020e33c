#ifndef HAWSER_TOOLS_DOCTOR_DEVICE_H_
#define HAWSER_TOOLS_DOCTOR_DEVICE_H_

#include <netinet/in.h>

#include <string>
#include <vector>

#include "hawser/tools/doctor/system.h"

// The RDMA devices of a machine as the kernel's sysfs shows them
// (Documentation/ABI/stable/sysfs-class-infiniband). Texts are as they were read: "" if a file is not there
// or has no value, anything if it is garbage.
namespace hawser::doctor {

enum class GidType { kInfiniBandOrRoceV1, kRoceV2, kUnknown };

// "RoCE v1", "RoCE v2", "unknown type".
absl::string_view RoceName(GidType type);

struct Gid {
  int index = 0;
  in6_addr address = {};
  GidType type = GidType::kUnknown;
  std::string netdev;  // "": none, or one of another network namespace.

  // Made from the MAC address or given as fe80::...: no address that a peer is reached by.
  bool is_link_local() const { return IN6_IS_ADDR_LINKLOCAL(&address); }
  // "::ffff:10.0.0.1", or for such a one "10.0.0.1".
  std::string ToString() const;
};

struct Port {
  int number = 0;
  std::string state;       // "ACTIVE", "DOWN", ... without the number that the kernel puts before it.
  std::string phys_state;  // "LinkUp", "Polling", ...
  std::string link_layer;  // "Ethernet", "InfiniBand".
  std::string rate;        // "100 Gb/sec (4X EDR)".
  std::string netdev;
  bool netdev_by_mac = false;         // `netdev` was found by its MAC address alone.
  std::vector<Gid> gids;              // Those that are set.
  std::vector<std::string> bad_gids;  // What stood where a GID should.
  std::string default_roce_mode;      // In configfs, "IB/RoCE v1". "": configfs has no entry.

  bool is_active() const { return state == "ACTIVE"; }
  bool HasGidOf(GidType type) const;
  // On Ethernet: the type of the GIDs by which rdma_cm finds the port.
  GidType rdma_cm_gid_type() const;
};

struct Device {
  std::string name;  // "mlx5_0"
  bool is_iwarp = false;
  std::string numa_node;
  std::string uverbs;  // "uverbs0"; "": ib_uverbs does not serve it.
  std::vector<Port> ports;
};

std::vector<Device> ReadDevices(const System& system);

bool AnyPortIsActive(const std::vector<Device>& devices);

// Where Port::default_roce_mode is.
std::string DefaultRoceModePath(const std::string& device, int port);

// "mlx5_0/1".
std::string PortName(const Device& device, const Port& port);

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_DEVICE_H_
