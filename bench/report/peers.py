"""The systems that are compared, and how the program of each is found or built."""

import os
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class OptionalPeer:
    """A system whose program is built only where its packages are installed."""

    system: str
    packages: tuple

    @property
    def label(self):
        return f"//bench/peers:{self.system}"


OPTIONAL = (
    OptionalPeer("grpc", ("libgrpc++-dev", "libprotobuf-dev", "protobuf-compiler", "protobuf-compiler-grpc")),
    OptionalPeer("thrift", ("libthrift-dev", "thrift-compiler", "libboost-dev")),
)

# Of the packages that say which version was measured.
VERSIONS = {"capnp_rpc": "libcapnp-dev", "grpc": "libgrpc++-dev", "thrift": "libthrift-dev"}

BUILD_SECONDS_MAX = 900


def installed_version(package):
    """ "" if it is not installed."""
    try:
        shown = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", package],
            capture_output=True, text=True, timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    status, _, version = shown.stdout.partition(" ")
    return version.strip() if status == "installed" else ""


def versions(systems):
    found = {system: installed_version(VERSIONS[system]) for system in systems if system in VERSIONS}
    return {system: f"{VERSIONS[system]} {version}" for system, version in found.items() if version}


def build(peer, workspace, compilation_mode, say):
    """(the path of its program, "") or ("", why there is none, with what to do)"""
    missing = [package for package in peer.packages if not installed_version(package)]
    if missing:
        return "", f"not measured: its packages are missing; apt-get install {' '.join(missing)}, and run again"
    if not workspace or not os.path.exists(os.path.join(workspace, "bench/peers/BUILD.bazel")):
        return "", f"not measured: {peer.label} is only built with `bazelw run` in Hawser's own checkout"
    say(f"building {peer.label}")
    command = [os.path.join(workspace, "bazelw"), "build", f"--compilation_mode={compilation_mode}", peer.label]
    # As `bazelw run` does: without the packages that only Hawser's tests need.
    environment = dict(os.environ, HAWSER_PACKAGES="use", HAWSER_NO_INSTALL="1")
    try:
        built = subprocess.run(
            command, cwd=workspace, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=BUILD_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"does not build: {error}"
    program = os.path.join(workspace, "bazel-bin", "bench", "peers", peer.system)
    if built.returncode != 0 or not os.path.exists(program):
        return "", f"does not build: exit status {built.returncode}: {built.stderr.strip()[-1500:]}"
    return os.path.realpath(program), ""
