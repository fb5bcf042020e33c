#ifndef TESTS_TOOLS_FAKE_MACHINE_H_
#define TESTS_TOOLS_FAKE_MACHINE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/tools/doctor/checks.h"
#include "hawser/tools/doctor/device.h"
#include "hawser/tools/doctor/system.h"

namespace hawser::doctor {

// A machine that is made up: a folder with /sys, /proc, /dev and /etc as the kernel would show them,
// libraries that can be missing, and devices that can be forbidden. At first it has no RDMA, and all that it
// would need.
class FakeMachine final : public System, Loader {
 public:
  FakeMachine();
  ~FakeMachine() override;

  // Writes a file, and the folders above it.
  void Write(absl::string_view path, absl::string_view text);
  void Remove(absl::string_view path);

  // A port of a NIC, with all that is well: RoCE on `netdev` with the address 10.0.0.`number`, three GIDs.
  void AddRocePort(const std::string& device, int number, const std::string& netdev);
  void AddInfiniBandPort(const std::string& device, int number);
  // In sysfs and in libibverbs, with its character device, on NUMA node 0. Its ports are to be added.
  void AddDevice(const std::string& device, const std::string& uverbs);

  // Under /sys/class/infiniband/<device>/ports/<number>/.
  void WritePort(const std::string& device, int number, absl::string_view file, absl::string_view text);
  // The whole entry of the GID table.
  void WriteGid(const std::string& device, int number, int index, absl::string_view gid,
                absl::string_view type, absl::string_view netdev);
  // An unprivileged user with this limit, as /proc/self/limits has it.
  void SetMemlock(absl::string_view soft, absl::string_view hard);

  std::map<std::string, absl::Status> load;  // By library; what is not in it loads.
  std::vector<VerbsDevice> verbs_devices;    // What libibverbs lists.
  absl::Status listed;                       // Not OK: librdmacm lists none. Else all of them, in that order.
  std::map<std::string, absl::Status> open;  // By path; what is not in it is opened if it exists.
  std::map<std::string, std::string> environment;

  // All findings, one line each; what ToText() makes of them.
  std::vector<std::string> Examine(bool rdma_wanted = false) const;

  absl::Status OpenDevice(const std::string& path) const override;
  std::string Environment(const std::string& name) const override;

 private:
  explicit FakeMachine(std::string root);
  absl::Status Load(const std::string& library) override;
  absl::StatusOr<std::vector<VerbsDevice>> OpenDevices() override { return verbs_devices; }

  absl::StatusOr<std::vector<std::string>> ListDevices() override;

  const std::string root_;
};

// Those of `lines` of Examine() that are no "ok".
std::vector<std::string> NotOk(const std::vector<std::string>& lines);

}  // namespace hawser::doctor

#endif  // TESTS_TOOLS_FAKE_MACHINE_H_
