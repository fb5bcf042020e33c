#ifndef HAWSER_TOOLS_DOCTOR_SYSTEM_H_
#define HAWSER_TOOLS_DOCTOR_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hawser::doctor {

// What Hawser makes of the attributes of a device, and what it says itself.
struct VerbsLimits {
  size_t send_sges = 0;
  int max_sge = 0;
  uint32_t read_depth = 0;
  std::optional<uint32_t> inline_bytes;  // What a queue pair that was made has; empty: none was.
  int max_cqe = 0;
};

// What libibverbs says of a device that it has a provider for. (sysfs does not have a port's active_mtu.)
struct VerbsDevice {
  std::string name;
  absl::Status opened;                     // How ibv_open_device() and ibv_query_port() went.
  std::map<int, int> active_mtu_of_ports;  // In bytes, by port number; only if `opened`.
  bool uses_windows = true;                // fabric::UsesWindows(); true if not `opened`.
  bool pins_rings = true;                  // Not fabric::IsSoftware(); true if not `opened`.
  std::string windows_refused;  // The kernel advertises windows, but the provider has none: its answer.
  std::string windows_untried;  // The kernel advertises windows, and a trial of them could not be made: why.
  bool iwarp = false;           // False if not `opened`.

  // Whether Hawser ever takes it, by its transport and its attributes; why not. OK if not `opened`.
  absl::Status suits;
  // How making a reliable queue pair went; OK if it was not tried.
  absl::Status makes_queue_pairs;

  std::optional<VerbsLimits> limits;  // Empty if not `opened`, or if it does not suit.
};

// Opens the libraries that Hawser needs for RDMA. An interface, so that tests can make them missing.
class Loader {
 public:
  virtual ~Loader() = default;

  // dlopen(). NotFound with the linker's own reason.
  virtual absl::Status Load(const std::string& library) = 0;

  // After a good Load("libibverbs.so.1"): the devices that it lists, which are those with a provider.
  virtual absl::StatusOr<std::vector<VerbsDevice>> OpenDevices() = 0;

  // Their names as librdmacm's rdma_get_devices() lists them, which is what Hawser chooses from. Not OK: it
  // lists none. FailedPrecondition: Load("librdmacm.so.1") was not good.
  virtual absl::StatusOr<std::vector<std::string>> ListDevices() = 0;
};

// The machine and the process as the checks see them.
// Thread: one.
class System {
 public:
  // `root`: the folder in which /sys, /proc, /dev and /etc are looked for, "" for the real ones. `loader`
  // outlives it.
  System(std::string root, Loader& loader) : root_(std::move(root)), loader_(loader) {}
  virtual ~System() = default;
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  // A small text file (its first 64 KiB) without the white space round it. Not OK: it is not there, or, as
  // sysfs does for what has no value, reading it fails.
  absl::StatusOr<std::string> Read(absl::string_view path) const;
  // The same, "" if it cannot be read.
  std::string ReadOrEmpty(absl::string_view path) const;

  // Names in a folder: numbers by value first, then the others; none if there is no such folder.
  std::vector<std::string> List(absl::string_view path) const;

  bool Exists(absl::string_view path) const;

  // Opens a character device for reading and writing and closes it: access(2) does not know of what a
  // container's device rules forbid. The status is of the errno: NotFound, PermissionDenied, or another.
  virtual absl::Status OpenDevice(const std::string& path) const;

  // A variable of the environment; "" if it is not set.
  virtual std::string Environment(const std::string& name) const;

  Loader& loader() const { return loader_; }

 private:
  std::string At(absl::string_view path) const;

  const std::string root_;
  Loader& loader_;
};

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_SYSTEM_H_
