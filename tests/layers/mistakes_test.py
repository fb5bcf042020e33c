#!/usr/bin/python3 -B
"""The table of docs/guide.md, "What ends the process", has each CHECK that a mistake of a program leads to, and nothing else.

The last column of a row has a part of the line that each of its CHECKs prints. A CHECK that no row has is one of OURS, which only
a bug of the library could fail: one that is in neither place, or in both, is a fault.

State machines (base/state_machine.h) and HAWSER_SUBTRACT are not looked at: they are about the library's own state alone.
"""

import os
import re
import unittest

ROOMS = ("base", "codegen", "measure", "observe", "rpc", "services", "tls", "transport")

# A part of the text of each row, so that it can be no other's.
PART_MIN = 15

# (file, a part of the text)
OURS = [
    ("observe/facts.h", "such a row does not say whether it was answered"),
    ("observe/html.cc", "a row of another table"),
    ("observe/prometheus.cc", "this fact is no metric"),
    ("observe/tables.h", "no table has this fact"),
    ("rpc/client/channel_core.cc", "met event"),
    ("rpc/client/untyped_call.cc", " (method "),  # Prints the texts of Misused().
    ("rpc/server/admission.cc", "no places of this host"),
    ("rpc/server/admission.cc", "no receives of this host"),
    ("rpc/server/client_table.cc", "a session ended twice"),
    ("rpc/server/host_counts.cc", "are given back that were not given"),
    ("rpc/server/serving_poller.cc", "no connection of this host waits"),
    ("rpc/services/health_board.cc", "watches of a host"),
    ("rpc/serving/serving_connection.cc", "has ended twice"),
    ("rpc/serving/serving_connection.cc", "connection to "),
    ("tls/secret.cc", "HMAC-SHA-256 made"),
    ("transport/connection/inbound.cc", "which was not taken, has completed"),
    ("transport/connection/outbound.cc", "revocation "),
    ("transport/connection/responder.cc", "found != nullptr"),
    ("transport/fabric/tcp/completion_queue.cc", "a handler that runs inside Poll() polls"),
    ("transport/fabric/tcp/receive_queue.cc", "filled_ < posted_"),
    ("transport/poller/poller.cc", "this code must run on its poller"),
    ("transport/runtime.cc", "a runtime without threads lost its last owner on one of its pollers"),
    ("transport/sharing/read_ledger.cc", "a host left that holds"),
    ("transport/wire/capnp_layout.h", "a root of "),
    ("transport/wire/message.cc", "an ended message left bytes in its first segment"),
    ("transport/wire/proof.cc", "a proof of "),
]

# They print the texts of others.
PRINTERS = ("base/check.h", "base/state_machine.h")

CHECK = re.compile(r"(?<!void )\b(?:HAWSER_CHECK|Misused|CheckFailed)\(")
# Comments, literals with escapes, and what else a parenthesis may be in.
SKIPPED = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?P<text>(?:\\.|[^"\\\n])*)"|'(?:\\.|[^'\\\n])'""", re.DOTALL)
# The literals of one text stand behind one another.
BETWEEN = re.compile(r"\s*")


def checks(source):
    """Yields the line of each CHECK of a source, and its texts."""
    skipped = list(SKIPPED.finditer(source))
    code = SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    for found in CHECK.finditer(code):
        end, depth = found.end(), 1
        while depth != 0:
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        texts, last = [], None
        for literal in skipped:
            if literal["text"] is None or not found.end() <= literal.start() < end:
                continue
            text = literal["text"].replace('\\"', '"')
            if last is not None and BETWEEN.fullmatch(source, last, literal.start()):
                texts[-1] += text
            else:
                texts.append(text)
            last = literal.end()
        yield code.count("\n", 0, found.start()) + 1, texts


def rows(guide):
    """Yields the first column and the texts of each row of the table."""
    section = guide.split("**What ends the process.**")[1]
    for line in section[section.index("\n| ") :].strip().split("\n\n")[0].splitlines()[2:]:
        on, _, says = line.strip("| ").split(" | ")
        yield on, re.findall(r"`([^`]+)`", says)


def faults(guide, sources):
    """Texts of what the table and OURS do not say as the `sources`, by path, do."""
    table = list(rows(guide))
    yield from (f"the guide: {on}: no text, or a short one" for on, texts in table if min(map(len, texts), default=0) < PART_MIN)
    unused = {("the guide", on, part) for on, texts in table for part in texts} | {("OURS", path, part) for path, part in OURS}
    known = sorted(unused)
    for path, source in sorted(sources.items()):
        for line, texts in checks(source) if path not in PRINTERS else ():
            found = [
                (where, of, part)
                for where, of, part in known
                if any(part in text for text in texts) and (where == "the guide" or of == path)
            ]
            unused -= set(found)
            if len({where for where, _, _ in found}) != 1:
                yield f"{path}:{line}: {' and '.join(sorted({each[0] for each in found})) or 'nothing'} has the CHECK with {texts}"
    yield from (f"{where}: {of}: there is no CHECK with {part!r}" for where, of, part in sorted(unused))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class MistakesTest(unittest.TestCase):
    def setUp(self):
        self.sources = {}
        for room in ROOMS:
            for folder, _, files in os.walk(os.path.join(ROOT, room)):
                for file in files:
                    if file.endswith((".h", ".cc")):
                        path = os.path.join(folder, file)
                        self.sources[os.path.relpath(path, ROOT)] = read(path)
        self.guide = read(os.path.join(ROOT, "docs/guide.md"))

    def test_texts_of_checks_are_read(self):
        source = """
// HAWSER_CHECK(a, "in a comment");
void Misused(const char* how);
HAWSER_CHECK(f(a) && ')' != '"', "one \\""
             "text (", count,
             ", another");
if (b) internal::Misused(
    "twice");
HAWSER_CHECK(c);
"""
        self.assertEqual(list(checks(source)), [(4, ['one "text (', ", another"]), (7, ["twice"]), (9, [])])

    def test_the_guide_has_each_check_that_a_mistake_leads_to(self):
        self.assertGreater(sum(len(list(checks(source))) for source in self.sources.values()), 40)
        wrong = list(faults(self.guide, self.sources))
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_what_only_one_of_them_has_is_found(self):
        new = {**self.sources, "rpc/new.cc": 'HAWSER_CHECK(!done_, "New::Add() after Done()");'}
        self.assertEqual(len(list(faults(self.guide, new))), 1)
        self.assertEqual(len(list(faults(self.guide, {path: source for path, source in new.items() if path != "rpc/server_context.cc"}))), 3)
        without = "\n".join(line for line in self.guide.splitlines() if not line.startswith("| a `VersionedCell`"))
        self.assertEqual(len(list(faults(without, self.sources))), 1)


if __name__ == "__main__":
    ROOT = os.path.realpath(__file__).rsplit("/tests/layers/", 1)[0]
    unittest.main()
