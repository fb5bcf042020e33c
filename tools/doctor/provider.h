#ifndef HAWSER_TOOLS_DOCTOR_PROVIDER_H_
#define HAWSER_TOOLS_DOCTOR_PROVIDER_H_

#include <string>
#include <vector>

#include "hawser/tools/doctor/device.h"
#include "hawser/tools/doctor/finding.h"
#include "hawser/tools/doctor/system.h"

// The providers of libibverbs: the halves of the drivers that run in a program. A device needs one that knows
// its hardware and the ABI version of its half in the kernel.
namespace hawser::doctor {

// What to do where one is missing.
inline constexpr char kInstallProviders[] =
    "apt-get install ibverbs-providers (or what the NIC's vendor ships)";

// By the names of their files in /etc/libibverbs.d: "mlx5".
std::vector<std::string> InstalledProviders(const System& system);

// For each device, whether libibverbs can use it, and if it does not list it, why, as far as files show it.
// Then those that it lists and sysfs does not show. `verbs_devices`: of Loader::OpenDevices().
Findings CheckProviders(const System& system, const std::vector<Device>& devices,
                        const std::vector<VerbsDevice>& verbs_devices);

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_PROVIDER_H_
