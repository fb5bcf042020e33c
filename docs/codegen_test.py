#!/usr/bin/python3 -B
"""The command with which codegen/README.md generates code without Bazel works as it is there, in an empty folder.

    codegen_test.py codegen/README.md

Only the folder of the checkout differs: here the outputs of the build are beside the sources.
"""

import os
import re
import shutil
import subprocess
import sys
import unittest

CAPNP = "external/hawser_system/bin"


class CodegenTest(unittest.TestCase):
    def test_the_command_generates_both_halves(self):
        with open(PAGE, encoding="utf-8") as file:
            intro = file.read().split("\n## ", 1)[0]
        commands = [line.strip() for line in intro.splitlines() if line.startswith("    ")]
        build = [command for command in commands if "bazelw build" in command]
        rest = [command for command in commands if command not in build]
        self.assertEqual([len(build), len(rest)], [1, 2], commands)
        # What the page has Bazel build is what this test has in its data.
        self.assertEqual(set(re.findall(r"//[\w:-]+", build[0])), {"//codegen:capnpc-hawser", "//rpc:memory_schema"})
        here = os.getcwd()
        folder = os.path.join(os.environ["TEST_TMPDIR"], "empty")
        os.mkdir(folder)
        shutil.copy("examples/kv/kv.capnp", folder)
        for command in rest:
            command = command.replace("path/to/hawser/bazel-bin", here).replace("path/to/hawser", here)
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env={**os.environ, "PATH": f"{os.path.join(here, CAPNP)}:{os.environ['PATH']}"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}")
        self.assertEqual(
            sorted(os.listdir(os.path.join(folder, "out"))), ["kv.capnp.c++", "kv.capnp.h", "kv.rpc.c++", "kv.rpc.h"]
        )


if __name__ == "__main__":
    PAGE = sys.argv.pop()
    unittest.main()
