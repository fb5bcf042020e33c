#!/usr/bin/python3 -B
"""A debugger stops at the probes of a server and of a client, and sees what they tell of a call."""

import glob
import os
import re
import signal
import subprocess
import sys
import unittest

ECHO_SERVER, ECHO_CLIENT = sys.argv.pop(1), sys.argv.pop(1)
PATIENCE = 60  # Seconds. Longer is a failure.

# The arguments of each probe, as printf of gdb prints them.
SERVER_PROBES = {
    "request_received": "%lu:%lu.%lu",
    "handler_start": "%lu:%lu.%lu %s",
    "handler_return": "%lu:%lu.%lu %s",
    "response_sent": "%lu:%lu.%lu",
}
CLIENT_PROBES = {
    "call_start": "%lx %s",
    "request_sent": "%lu:%lu.%lu %lx",
    "response_received": "%lu:%lu.%lu %lx",
    "call_end": "%lx %s %lu",
}
CALLS = 3


def gdb(probes, program, *arguments):
    """`program` under gdb, which prints a line at each of the probes."""
    script = "set pagination off\nhandle SIGTERM nostop noprint pass\n"
    for name, form in probes.items():
        values = "".join(f", $_probe_arg{i}" for i in range(form.count("%")))
        line = f'printf "PROBE {name} {form}\\n"{values}'
        script += f"break -probe-stap hawser:{name}\ncommands\nsilent\n{line}\ncontinue\nend\n"
    path = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), os.path.basename(program) + ".gdb")
    with open(path, "w", encoding="utf-8") as file:
        file.write(script + "run\n")
    return subprocess.Popen(
        ["gdb", "--batch", "-nx", "-iex", "set debuginfod enabled off", "-x", path, "--args", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def child_of(pid, name):
    """The process `name` that `pid` has started."""
    for status in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(status, encoding="utf-8") as file:
                found = re.match(r"(\d+) \((.*)\) \S (\d+)", file.read())
        except OSError:  # It has ended.
            continue
        if found and found[2] == name and int(found[3]) == pid:
            return int(found[1])
    raise AssertionError(f"{pid} has no child {name}")


def probes_in(output):
    """[(name, its arguments)] in their order."""
    return [tuple(line.split()[1:]) for line in output.splitlines() if line.startswith("PROBE ")]


def calls_in(found, first):
    """`found`, from one `first` to the next."""
    starts = [i for i, probe in enumerate(found) if probe[0] == first] + [len(found)]
    return [found[a:b] for a, b in zip(starts, starts[1:])]


class ProbesTest(unittest.TestCase):
    def listening(self, server):
        for line in server.stdout:
            if "ptrace: Operation not permitted" in line:
                self.skipTest("this machine allows no debugger")
            if found := re.search(r"tcp://127\.0\.0\.1:\d+", line):
                return found[0]
        self.fail("the server did not start")

    def test_a_server_tells_the_steps_of_each_call(self):
        with gdb(SERVER_PROBES, ECHO_SERVER, "--listen=tcp://127.0.0.1:0") as server:
            uri = self.listening(server)
            client = [ECHO_CLIENT, f"--target={uri}", f"--count={CALLS}"]
            subprocess.run(client, check=True, timeout=PATIENCE, stdout=subprocess.PIPE)
            os.kill(child_of(server.pid, "echo_server"), signal.SIGTERM)
            found = probes_in(server.communicate(timeout=PATIENCE)[0])
        calls = calls_in(found, "request_received")
        self.assertGreaterEqual(len(calls), CALLS, found)
        for call in calls:
            self.assertEqual([probe[0] for probe in call], list(SERVER_PROBES), found)
            self.assertEqual({probe[1] for probe in call}, {call[0][1]})
            self.assertRegex(call[0][1], r"^[1-9]\d*:\d+\.[1-9]\d*$")
            self.assertEqual({probe[2] for probe in call if len(probe) > 2}, {"echo.capnp:Echo.echo"})

    def test_a_client_tells_the_steps_of_each_call(self):
        with subprocess.Popen([ECHO_SERVER, "--listen=tcp://127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as server:
            try:
                arguments = [f"--target={self.listening(server)}", f"--count={CALLS}"]
                with gdb(CLIENT_PROBES, ECHO_CLIENT, *arguments) as client:
                    found = probes_in(client.communicate(timeout=PATIENCE)[0])
            finally:
                server.terminate()
        calls = calls_in(found, "call_start")
        self.assertGreaterEqual(len(calls), CALLS, found)
        for call in calls:
            self.assertEqual([probe[0] for probe in call], list(CLIENT_PROBES), found)
            start, sent, received, end = call
            self.assertEqual({start[1], sent[2], received[2], end[1]}, {start[1]})
            self.assertEqual(sent[1], received[1])
            self.assertEqual((start[2], end[2], end[3]), ("echo.capnp:Echo.echo", "echo.capnp:Echo.echo", "1"))


if __name__ == "__main__":
    unittest.main()
