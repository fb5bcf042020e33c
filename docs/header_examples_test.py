#!/usr/bin/python3 -B
"""Each header of rpc/ that a program includes opens with an example, which is a snippet of docs/snippets, line for line.

    header_examples_test.py rpc/*.h snippets/*.cc

The example is what is indented by three spaces in the first comment of the header, in front of its includes. A header that has
none is in NOT_BY_NAME. guide_test.py says what a snippet is. Each snippet of HEADERS_ONLY is in a header; those of other files are
in a page, and may be in a header, too.
"""

import os
import re
import sys
import textwrap
import unittest

sys.path.insert(0, "docs")
from guide_test import snippets

HEADERS_ONLY = "headers_test.cc"

# Headers that no program has to include by name, and why.
NOT_BY_NAME = {
    "load_schema.h": "for generated code",
    "method.h": "for generated code; interceptor.h and server_context.h bring it to programs that look at a Method",
    "method_table.h": "for generated code; service.h brings it to a class that implements two interfaces",
    "server_extension.h": "for services of Hawser's own, which programs name by PerfExtension() and the like",
}

# Lines of an example.
LINES_MIN = 5
LINES_MAX = 12

OPENING = re.compile(r"#ifndef (\w+)\n#define \1\n\n((?://.*\n)+)")


def example(text):
    """What the opening comment of a header has of code. Empty: it has none."""
    opening = OPENING.match(text)
    if not opening:
        return ""
    lines = [line[2:] for line in opening[2].splitlines()]
    code = [number for number, line in enumerate(lines) if line.startswith("   ")]
    if not code:
        return ""
    return textwrap.dedent("".join(line + "\n" for line in lines[code[0] : code[-1] + 1]))


def fault(name, text, known):
    """What is wrong with one header. `known`: the texts of the snippets. Empty: nothing."""
    code = example(text)
    if name in NOT_BY_NAME:
        return f"{name} opens with an example: take it out of NOT_BY_NAME" if code else ""
    if not code:
        return f"{name} opens with no example"
    lines = len(code.splitlines())
    if not LINES_MIN <= lines <= LINES_MAX:
        return f"{name} opens with an example of {lines} lines, not of {LINES_MIN} to {LINES_MAX}"
    return "" if code in known else f"{name}: its example is no snippet:\n{code}"


class HeadersTest(unittest.TestCase):
    def setUp(self):
        self.headers = {}
        self.known = {}
        for path in FILES:
            if path.endswith(".h"):
                with open(path, encoding="utf-8") as file:
                    self.headers[os.path.basename(path)] = file.read()
            else:
                for name, text in snippets(path):
                    self.known[text] = f"{os.path.basename(path)}: {name}"

    def test_each_header_that_programs_include_opens_with_a_snippet(self):
        faults = [fault(name, text, self.known) for name, text in sorted(self.headers.items())]
        self.assertFalse("\n".join(filter(None, faults)))
        self.assertFalse(sorted(NOT_BY_NAME.keys() - self.headers.keys()), "NOT_BY_NAME has headers that are not there")

    def test_each_snippet_for_headers_is_in_one(self):
        shown = {example(text) for text in self.headers.values()}
        names = [name for text, name in self.known.items() if name.startswith(HEADERS_ONLY)]
        self.assertTrue(names)
        unused = [name for text, name in self.known.items() if name.startswith(HEADERS_ONLY) and text not in shown]
        self.assertFalse(unused)

    def test_a_header_without_its_snippet_is_found(self):
        guard = "#ifndef A_H_\n#define A_H_\n\n"
        code = "".join(f"Line{number}();\n" for number in range(LINES_MIN))
        comment = "// What it is:\n//\n" + "".join(f"//   {line}\n" for line in code.splitlines()) + "\n"
        self.assertEqual(fault("a.h", guard + comment, {code}), "")
        self.assertIn("is no snippet", fault("a.h", guard + comment.replace("Line3", "Line4"), {code}))
        self.assertIn("is no snippet", fault("a.h", guard + comment.replace("//   Line2();\n", "//\n"), {code}))
        self.assertIn("4 lines", fault("a.h", guard + comment.replace("//   Line0();\n", ""), {code}))
        for nothing in ("// What it is.\n", "#include <memory>\n\n" + comment, ""):
            self.assertIn("no example", fault("a.h", guard + nothing, {code}))
        self.assertEqual(fault("method.h", guard, {code}), "")
        self.assertIn("NOT_BY_NAME", fault("method.h", guard + comment, {code}))


if __name__ == "__main__":
    FILES = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
