#!/usr/bin/python3 -B
"""The table of limits in docs/operating.md has the figures of the code.

Each line of LIMITS names a row of the table, by how it begins, and where its figures are: a file, and names of constants or
options in it.
"""

import os
import re
import sys
import unittest

LIMITS = [
    ("connections", "rpc/options.h", ["connections_max"]),
    ("connections of one host", "rpc/options.h", ["connections_per_host_max"]),
    ("connections that a poller", "rpc/server/serving_poller.cc", ["kWaitingMax", "kWaitingOfHostMax"]),
    ("clients that have sent no message", "rpc/server/admission.cc", ["kNewcomersMax", "kNewcomersPerHostMax"]),
    ("TCP connections without", "transport/fabric/tcp/options.h", ["half_open_max", "half_open_per_host_max"]),
    ("registered memory", "transport/memory/pool_options.h", ["limit_bytes"]),
    ("ranges that a program", "transport/memory/user_regions.h", ["kRegionsMax"]),
    ("calls in flight", "transport/wire/options.h", ["slots"]),
    ("a message", "transport/wire/options.h", ["message_bytes_max"]),
    ("certificates", "tls/certificate.h", ["kCertificatesBytesMax"]),
    ("certificates", "tls/credential_files.cc", ["kFileBytesMax"]),
    ("services whose health", "rpc/services/health_board.cc", ["kWatchesMax", "kWatchesOfHostMax", "kWatchesOfClientMax"]),
    ("calls that wait for a snapshot", "rpc/services/introspection.h", ["kWaitingMax", "kWaitingOfHostMax"]),
]


def value(source, name):
    """Of `name = EXPRESSION;` in the source, where the expression may have other names of it."""
    code = re.sub(r"^\s*//.*", "", source, flags=re.MULTILINE)  # Not an example in a comment.
    found = re.search(rf"\b{name} = ([^;]+);", code)
    if found is None:
        raise KeyError(name)
    expression = re.sub(r"\b(?:size_t|u?int\d+_t)\{(\d+)\}", r"\1", found[1]).replace("'", "")
    expression = re.sub(r"\bk\w+", lambda other: str(value(source, other[0])), expression)
    return eval(expression.replace("/", "//"), {"__builtins__": {}})  # pylint: disable=eval-used


def forms(figure):
    """How the page may write it: 65536, 4 GiB."""
    yield str(figure)
    for unit, name in ((10, "KiB"), (20, "MiB"), (30, "GiB")):
        if figure % (1 << unit) == 0:
            yield f"{figure >> unit} {name}"


def faults(page, read):
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    for begin, path, names in LIMITS:
        row = [" | ".join(cells[1:]) for cells in rows if cells[0] == begin] or [
            " | ".join(cells[1:]) for cells in rows if cells[0].startswith(begin)
        ]
        if len(row) != 1:
            yield f"{len(row)} rows begin with {begin!r}"
            continue
        for name in names:
            figure = value(read(path), name)
            if not any(re.search(rf"(?<![\d.]){form}(?![\d.]*\d)", row[0]) for form in forms(figure)):
                yield f"{path}: {name} is {figure}, and the row {begin!r} does not have that"


class LimitsTest(unittest.TestCase):
    def test_the_page_has_the_figures_of_the_code(self):
        def read(path):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                return file.read()

        page = read("docs/operating.md").split("\n## Limits\n")[1].split("\n## ")[0]
        self.assertEqual(list(faults(page, read)), [])
        # A page that is not changed with the code is found.
        self.assertEqual(len(list(faults(page, lambda path: read(path).replace("kWaitingMax = ", "kWaitingMax = 7 + ")))), 3)
        self.assertEqual(len(list(faults(page.replace("65536", "65535"), read))), 1)

    def test_expressions_have_values(self):
        source = "constexpr size_t kMost = 4 << 20;\nconstexpr size_t kHalf = kMost / 2;\nuint64_t limit = uint64_t{4} << 30;"
        source = "//   options.limit = 5;\n" + source
        self.assertEqual([value(source, name) for name in ("kHalf", "limit")], [2 << 20, 4 << 30])
        self.assertEqual(list(forms(32 << 10)), ["32768", "32 KiB"])


if __name__ == "__main__":
    ROOT = os.path.realpath(__file__).rsplit("/tests/layers/", 1)[0]
    unittest.main()
