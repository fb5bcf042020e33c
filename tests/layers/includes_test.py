#!/usr/bin/python3 -B
"""Each #include "hawser/..." of a library is of that library, or of one that it names in `deps`.

Usage: includes_test.py MANIFEST, which tests/layers/includes.bzl writes.
"""

import os
import re
import sys
import unittest

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]hawser/([^">]+)[">]', re.MULTILINE)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class IncludesTest(unittest.TestCase):
    def faults(self, lines, read=read):
        texts = []
        for line in lines:
            label, files, headers = line.split("\t")
            allowed = set(headers.split())
            texts += [
                f"{path} includes {header}, which no dependency of {label} offers"
                for path in files.split()
                for header in INCLUDE.findall(read(path))
                if header not in allowed
            ]
        return texts

    def test_what_no_dependency_offers_is_found(self):
        source = '#include "hawser/a/a.h"\n#include "hawser/b/b.h"\n'
        self.assertEqual(self.faults(["//a\ta/a.cc\ta/a.h b/b.h"], lambda _: source), [])
        self.assertEqual(len(self.faults(["//a\ta/a.cc\ta/a.h"], lambda _: source)), 1)

    def test_libraries_include_what_they_depend_on(self):
        lines = read(MANIFEST).splitlines()
        labels = [line.split("\t")[0] for line in lines]
        for label in ("//rpc:rpc", "//rpc/client:client", "//transport/connection:connection", "//transport/fabric/tcp:queue_pair", "//base:check"):
            self.assertIn(label, labels)
        self.assertEqual(self.faults(lines), [])

    def test_a_call_pulls_in_no_connection(self):
        """What each file of a program that makes calls is compiled with."""
        seen, new = set(), ["rpc/call.h"]
        while new:
            header = new.pop()
            seen.add(header)
            new += [each for each in INCLUDE.findall(read(header)) if each not in seen and os.path.exists(each)]
        self.assertIn("transport/wire/message.h", seen)
        self.assertEqual([each for each in seen if each.startswith("transport/connection/")], [])
        self.assertFalse(seen & {"transport/poller/poller.h", "rpc/client/channel_core.h"})

    def test_rpc_names_no_fabric(self):
        """What a header includes it also brings to those that may not include it."""
        files = [path for line in read(MANIFEST).splitlines() for path in line.split("\t")[1].split()]
        rpc = [path for path in files if path.startswith("rpc/")]
        self.assertGreater(len(rpc), 50)
        fabrics = re.compile(r"\bfabric::|\bk(Rdma|Tcp)Scheme\b")
        self.assertEqual([path for path in rpc if fabrics.search(read(path))], [])


if __name__ == "__main__":
    MANIFEST = sys.argv.pop()
    unittest.main()
