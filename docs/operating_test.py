#!/usr/bin/python3 -B
"""The commands of operating.md work, as they are there, and its table of metrics is that of a server.

    operating_test.py operating.md

A command is an indented line. Those of a section run one after the other in a folder of their own, against a key-value server,
with its addresses and its process in the place of those of the page. A line `kv_server ... &` starts another one, for the rest of
the section. What watches for a change runs against a server whose health changes.
"""

import os
import re
import shlex
import subprocess
import sys
import time
import unittest

sys.path.insert(0, "tests/observe")
from status_page import PATIENCE, KvServer

CHANGING_SERVER = ["tests/tools/everything_server", "--listen=tcp://127.0.0.1:0", "--lie=truth"]
PROGRAMS = {
    "hawser": "tools/hawser/hawser",
    "kv_server": "examples/kv/kv_server",
}


def sections(text):
    """Yields the heading and the commands of each section."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, body = section.split("\n", 1)
        body = re.sub(r"^```.*?^```$", "", body, flags=re.MULTILINE | re.DOTALL)
        yield heading, [line.strip() for line in body.splitlines() if re.match(r" {4,}\S", line)]


class OperatingTest(unittest.TestCase):
    def setUp(self):
        with open(PAGE, encoding="utf-8") as file:
            self.text = file.read()
        self.folder = os.path.join(os.environ["TEST_TMPDIR"], self.id())
        os.mkdir(self.folder)
        bin = os.path.join(self.folder, "bin")
        os.mkdir(bin)
        for name, path in PROGRAMS.items():
            os.symlink(os.path.abspath(path), os.path.join(bin, name))
        self.environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"}

    def here(self, command, server):
        """The command with what is here in the place of what is on the page."""
        host, port = re.fullmatch(r"tcp://(.*):(\d+)", server.uri).groups()
        command = command.replace("DNS:kv1", "IP:" + host)
        command = re.sub("(kv1|localhost):7470", f"{host}:{port}", command)
        if command.startswith("hawser top "):
            command += " --count=1 --interval=300ms"
        if command.startswith("hawser perf "):
            command += " --duration=20ms --warmup=1ms"
        command = command.replace("http://127.0.0.1:9090", server.url)
        return command.replace("--pid=4711", f"--pid={server.pid}")

    def run_section(self, commands, server):
        for command in commands:
            if command.startswith("kv_server "):
                words = shlex.split(command.removesuffix("&").replace("kv1:7470", "127.0.0.1:0").replace("9090", "0"))
                with KvServer(words, cwd=self.folder, env=self.environment) as other:
                    self.run_section(commands[commands.index(command) + 1 :], other)
                return
            if re.match("hawser health .* --watch", command):
                self.run_watch(command)
                continue
            done = self.run_command(self.here(command, server))
            self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}")
            if re.match("(hawser|curl) ", command):
                self.assertNotEqual(done.stdout, "", command)

    def run_watch(self, command):
        with subprocess.Popen(CHANGING_SERVER, stdout=subprocess.PIPE, text=True) as server:
            try:
                uri = server.stdout.readline().split()[-1]
                done = self.run_command(command.replace("tcp://kv1:7470", uri))
            finally:
                server.terminate()
        # "and ends after the first change", with the exit status of what does not serve.
        self.assertEqual((done.stdout, done.returncode), ("serving\nnot serving\n", 1), command)

    def run_command(self, command):
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )

    def test_commands_do_what_the_page_says(self):
        ran = 0
        with KvServer([PROGRAMS["kv_server"], "--listen=tcp://127.0.0.1:0", "--status=0", "--perf"]) as server:
            for heading, commands in sections(self.text):
                with self.subTest(heading=heading):
                    self.run_section(commands, server)
                ran += len(commands)
        self.assertGreaterEqual(ran, 20)

    def test_pages_are_those_of_a_server(self):
        with KvServer([PROGRAMS["kv_server"], "--listen=tcp://127.0.0.1:0", "--status=0"]) as server:
            # What answers an unknown path is the list of those that there are.
            answer = subprocess.run(
                ["curl", "-s", server.url + "/nothing"], stdout=subprocess.PIPE, text=True, check=True
            ).stdout
            served = set(re.findall(r"^/\S*$", answer, re.MULTILINE))
        section = dict(re.findall(r"^## (Look at it)\n(.*?)^## ", self.text, re.MULTILINE | re.DOTALL))["Look at it"]
        told = set(re.findall(r"`(/[\w.]*)`", "".join(re.findall(r"^\| (`[^|]*)\|", section, re.MULTILINE))))
        # The page says "..." for the rest of the JSON.
        self.assertEqual(told, {path for path in served if not path.endswith(".json") or path in told})
        self.assertIn("/snapshot.json", told)
        self.assertLessEqual({path + ".json" for path in told if re.fullmatch(r"/(?!metrics|healthz)\w+", path)}, served)

    def test_metrics_are_those_of_a_server(self):
        with KvServer([PROGRAMS["kv_server"], "--listen=tcp://127.0.0.1:0", "--status=0"]) as server:
            # A connection and a call, so that each metric has a value.
            command = [PROGRAMS["hawser"], "health", "--watch", f"--target={server.uri}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
                self.assertEqual(client.stdout.readline(), "serving\n")
                # The server's own call ends after the client has printed what it says.
                give_up = time.monotonic() + PATIENCE
                while "hawser_channel_calls_total{" not in (metrics := server.get("/metrics")):
                    self.assertLess(time.monotonic(), give_up, "the server's own call is not counted")
                client.terminate()
        served = dict.fromkeys(re.findall(r"^# TYPE (\S+)", metrics, re.MULTILINE))
        labels = {name: set() for name in served}
        for name, pairs in re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?\{(.*)\} ", metrics, re.MULTILINE):
            if name in labels:
                labels[name] |= set(re.findall(r'(\w+)="', pairs)) - {"le"}
        told = re.findall(r"^\| `((?:hawser|process)_\w+)` \|([^|]*)\|", self.text, re.MULTILINE)
        self.assertEqual(len(told), len(dict(told)), "a metric is told twice")
        self.assertEqual({name for name, _ in told}, set(served))
        for name, names in told:
            self.assertEqual(set(re.findall(r"\w+", names)), labels[name], name)

    def test_links_to_headings_find_them(self):
        headings = {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", self.text, re.MULTILINE)
        }
        self.assertLessEqual(set(re.findall(r"\]\(#([^)]+)\)", self.text)), headings)


if __name__ == "__main__":
    PAGE = sys.argv.pop()
    unittest.main()
