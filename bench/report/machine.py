"""Where and of what the figures are: the machine, the commit, the time."""

import datetime
import os
import platform
import subprocess
import time


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def output(*command):
    """ "" if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def field(text, name):
    """Of /proc/cpuinfo and /proc/meminfo: the first value of that name."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def virtualised(cpuinfo):
    said = [output("systemd-detect-virt", kind) for kind in ("--vm", "--container")]
    said = [each for each in said if each not in ("", "none")]
    if said:
        return f"yes ({', '.join(said)}, says systemd-detect-virt)"
    if "hypervisor" in field(cpuinfo, "flags").split():
        return "yes (the processor reports a hypervisor)"
    return "no sign of it"


def memory(meminfo):
    kib = field(meminfo, "MemTotal").split()
    return f"{int(kib[0]) / (1 << 20):.1f} GiB" if kib and kib[0].isdigit() else "unknown"


class CpuTimes:
    """What all cores did between two readings of /proc/stat, which counts ticks (proc(5))."""

    FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

    def __init__(self, text=None):
        words = (read("/proc/stat") if text is None else text).splitlines()[:1]
        ticks = words[0].split()[1 : 1 + len(self.FIELDS)] if words else []
        self.ticks = dict(zip(self.FIELDS, map(int, ticks)))

    def shares(self, later):
        """(share that was busy, share that the hypervisor gave to other guests)"""
        spent = {name: later.ticks.get(name, 0) - self.ticks.get(name, 0) for name in self.FIELDS}
        whole = sum(spent.values()) or 1
        return 1 - (spent["idle"] + spent["iowait"]) / whole, spent["steal"] / whole


def busy_before(seconds=0.5):
    """Which share of the cores other programs use while the report does nothing."""
    first = CpuTimes()
    time.sleep(seconds)
    return first.shares(CpuTimes())[0]


def describe():
    cpuinfo = read("/proc/cpuinfo")
    cores = len(os.sched_getaffinity(0))
    return {
        "processor": field(cpuinfo, "model name") or platform.machine(),
        "cores": f"{cores} of {os.cpu_count()}",
        "memory": memory(read("/proc/meminfo")),
        "kernel": f"{platform.system()} {platform.release()}",
        "virtualised": virtualised(cpuinfo),
        "TCP congestion control": read("/proc/sys/net/ipv4/tcp_congestion_control").strip() or "unknown",
    }


def commit(workspace):
    """What is checked out, and whether files differ from it."""
    if not workspace:
        return "unknown: not started by `bazelw run`"
    name = output("git", "-C", workspace, "rev-parse", "HEAD")
    if not name:
        return "unknown: no git checkout"
    changes = output("git", "-C", workspace, "status", "--porcelain")
    return name + (f", with {len(changes.splitlines())} changed files" if changes else ", no changes")


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
