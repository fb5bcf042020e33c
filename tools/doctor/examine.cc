#include "hawser/tools/doctor/checks.h"
#include "hawser/transport/memory/pool_options.h"
#include "hawser/transport/wire/options.h"

namespace hawser::doctor {

Findings Examine(const System& system, const std::vector<Device>& devices, bool rdma_wanted) {
  std::vector<VerbsDevice> verbs_devices;
  const Findings libraries = CheckLibraries(system, devices, rdma_wanted, &verbs_devices);

  Findings findings = CheckDevices(devices, rdma_wanted);
  if (!devices.empty()) Append(CheckChoice(system, devices, verbs_devices), &findings);
  Append(CheckPorts(system, devices, verbs_devices), &findings);
  Append(CheckGids(system, devices), &findings);
  Append(CheckNuma(system, devices), &findings);
  Append(libraries, &findings);
  Append(CheckLimits(verbs_devices), &findings);
  Append(CheckGrants(verbs_devices), &findings);
  Append(CheckIwarp(verbs_devices), &findings);
  if (!devices.empty()) Append(CheckAccess(system, devices), &findings);
  if (!devices.empty() || rdma_wanted) {
    Append(CheckNetns(system), &findings);
    Append(CheckMemlock(system, verbs_devices, transport::BufferPoolOptions().limit_bytes), &findings);
  }
  Append(CheckHugePages(system), &findings);
  Append(CheckFork(system), &findings);
  return findings;
}

}  // namespace hawser::doctor
