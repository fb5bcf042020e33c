#ifndef HAWSER_TOOLS_DOCTOR_CHECKS_H_
#define HAWSER_TOOLS_DOCTOR_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "hawser/tools/doctor/device.h"
#include "hawser/tools/doctor/finding.h"
#include "hawser/tools/doctor/system.h"

// What stops people from using RDMA, one check each. A check reads, and changes nothing; whatever it reads
// may be missing or garbage, which is a finding too.
namespace hawser::doctor {

// Everything below, in the order in which it is printed. Without a device only that is looked at which
// matters to TCP as well. `rdma_wanted`: the user asked for rdma://, so its lack is a problem.
Findings Examine(const System& system, const std::vector<Device>& devices, bool rdma_wanted);

// Is there a device at all? ok, if there is none and none is wanted: Hawser is as good on TCP.
Findings CheckDevices(const std::vector<Device>& devices, bool rdma_wanted);

// Says which devices Hawser uses, and why, and which it passes over, and why. Says nothing where what keeps
// it from all of them is said elsewhere. `verbs_devices`: of Loader::OpenDevices().
Findings CheckChoice(const System& system, const std::vector<Device>& devices,
                     const std::vector<VerbsDevice>& verbs_devices);

// What a queue pair of each device that Hawser can use has: entries of a SEND, bytes inline, READs,
// completions.
Findings CheckLimits(const std::vector<VerbsDevice>& verbs_devices);

// State, link layer, speed and MTU. A port that is down is a problem only if no other is up.
// `verbs_devices` is for the ports' active_mtu.
Findings CheckPorts(const System& system, const std::vector<Device>& devices,
                    const std::vector<VerbsDevice>& verbs_devices);

// Each GID with its type, netdev and use, and what is missing for rdma_cm to find the port by an IP address.
Findings CheckGids(const System& system, const std::vector<Device>& devices);

// The CPUs that this process may run on against each device's NUMA node.
Findings CheckNuma(const System& system, const std::vector<Device>& devices);

// The libraries that Hawser opens at run time, and a provider in libibverbs for each device.
Findings CheckLibraries(const System& system, const std::vector<Device>& devices, bool rdma_wanted,
                        std::vector<VerbsDevice>* verbs_devices);

// Whether a peer can READ only what was granted to it, or, by guessing, what was granted to others.
Findings CheckGrants(const std::vector<VerbsDevice>& verbs_devices);

// What iWARP exposes besides: where a large message arrives, peers can write meanwhile. A line for each such
// device.
Findings CheckIwarp(const std::vector<VerbsDevice>& verbs_devices);

// The kernel's modules for user space, and the right to open their character devices.
Findings CheckAccess(const System& system, const std::vector<Device>& devices);

// Whether containers share the devices, or each needs one of its own.
Findings CheckNetns(const System& system);

// Whether this process may lock `pool_limit_bytes` (BufferPoolOptions::limit_bytes), and what the devices pin
// beside them: rings, and, without memory windows, what is granted.
Findings CheckMemlock(const System& system, const std::vector<VerbsDevice>& verbs_devices,
                      uint64_t pool_limit_bytes);

Findings CheckHugePages(const System& system);

// What fork() means to a program that uses Hawser.
Findings CheckFork(const System& system);

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_CHECKS_H_
