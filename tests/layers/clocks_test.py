#!/usr/bin/python3 -B
"""No test fails because a busy machine ran it late: what ends something in real time is 2 s or longer.

It reads the sources of the tests, benchmarks, examples and snippets, and looks for

- in C++ a literal absl::Nanoseconds() to absl::Seconds(), or the same of std::chrono, below 2 s,
- in Python a number below 2 for `timeout`, settimeout(), wait() or a constant whose name has PATIENCE or TIMEOUT,
- in scripts and BUILD files such a number for timeout(1), `read -t`, or a flag whose name ends in timeout, life, deadline or patience.

These are no faults:

- time of a clock that only the test moves: Advance() and Pass(), and the files of ON_TEST_CLOCK, or that include one of
  HEADERS_ON_TEST_CLOCK and never use the system's clock,
- what begins something, or frees what is unused (BEGINS, and timers that a test sets): a busy machine only does it later,
- a lower bound: EXPECT_GE(), EXPECT_GT(), `>`, and a loop that waits until at least so much time has passed,
- one look of a loop that looks again: SleepFor(), a Wait...() of a loop or of a completion queue, and a condition of
  Eventually() or Await(), which try again,
- values that no clock is read for: EXPECT_EQ(), and 0,
- a constant whose name begins with kExpires. The test waits until that time is over, and nothing has to happen before it,
- the exceptions below.
"""

import os
import re
import sys
import unittest

LEAST_S = 2
FOLDERS = ["bench", "docs", "examples", "tests"]
UNITS = {"nanoseconds": 1e-9, "microseconds": 1e-6, "milliseconds": 1e-3, "seconds": 1, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "": 1}

ON_TEST_CLOCK = re.compile(r"^tests/(sim/|fuzz/|rpc/(attempt|expiry|session)_test)")
HEADERS_ON_TEST_CLOCK = re.compile(r'#include ".*transport/testing/(world|memory_world|hostile_stage)\.h"')
READS_CLOCK = re.compile(r"\babsl::Now\(\)|\bTestServer\b|\bChannel::")

# As fields and as constants: kPause is "pause".
BEGINS = {
    "arrival",
    "backoff_max",
    "backoff_min",
    "history_interval",
    "idle",
    "idle_time",
    "keepalive_interval",
    "nap",
    "pause",
    "period",
    "spin",
    "step",
    "time",
    "wake",
}

# (file, a part of the line, why)
IN_A_GUEST = "a guest that runs alone, where it waits for the kernel's drivers, and what takes part runs in other guests"
EXPECTED = "the test waits for the end, and nothing has to happen before it"
NO_CLOCK = "a value that no clock is compared with"
EXCEPTIONS = [
    ("bench/expiry.cc", "late_max", "by hand: the test is given another"),
    ("bench/neighbours.cc", "kLookEvery", "one look of a loop"),
    ("bench/stopped_clients.cc", "kRun", "how long a process goes on between two stops"),
    ("docs/snippets/coroutines_test.cc", "kHedgeAfter", "when the second call begins"),
    ("docs/snippets/coroutines_test.cc", "hawser::Sleep(", "when the read begins"),
    ("examples/progress.cc", "kBefore", "when the first line is printed"),
    ("examples/progress.cc", "kBetween", "when the next line is printed"),
    ("tests/chaos/table_client.cc", "Put(key, absl::Milliseconds(1", EXPECTED),
    ("tests/chaos/remote_tables.cc", "kLookEvery", "one look of a loop"),
    ("tests/chaos/client.cc", "kLateMax", "to it comes what the machine is measured to be late"),
    ("tests/codegen/generated_code_test.cc", ".timeout", NO_CLOCK),
    ("tests/examples/histogram_test.cc", ".Add(", NO_CLOCK),
    ("tests/rpc/deadline_test.cc", "absl::Milliseconds(900)", "on a clock that only the test moves"),
    ("tests/rpc/designated_options_test.cc", "timeout", NO_CLOCK),
    ("tests/rpc/greeting_flood_test.cc", "slowest_connect", "only by hand, for a figure"),
    ("tests/rpc/network/dying_machine_test.cc", "absl::Seconds(1)", IN_A_GUEST),
    ("tests/rpc/network/long_waits_test.cc", "absl::", "in a guest with virtual time"),
    ("tests/rpc/otlp_trace_sink_test.cc", "absl::Nanoseconds(1500)", NO_CLOCK),
    ("tests/rpc/snapshot_test.cc", "absl::Milliseconds(500)", "one of five tries, of which most are to be shorter"),
    ("tests/softroce/pair.sh", "read -r -t 0.05", "one look of a loop"),
    ("tests/tls/resumption_test.cc", "end - absl::Seconds(1)", "certificates know whole seconds; it tries again"),
    ("tests/tools/hawser_call_test.sh", "Everything.sleep --timeout=200ms", EXPECTED),
    ("tests/tools/hawser_hostile_test.sh", "--timeout=300ms", EXPECTED),
    ("tests/transport/fabric/fabric_contract_end.cc", "patience = absl::Now() + absl::Milliseconds(100)", "the test goes on then"),
    ("tests/transport/fabric/kernel_tls_contract_test.cc", "rnr_timeout", EXPECTED),
    ("tests/transport/fabric/tcp_contract_test.cc", "rnr_timeout", EXPECTED),
    ("tests/transport/fabric/tcp_fork_test.cc", "until_ns", "it counts those that end before"),
    ("tests/transport/fabric/tcp_stage.h", "rnr_timeout", EXPECTED),
    ("tests/transport/poller_test.cc", "IdleLoad", "how long a measurement goes on"),
    ("tests/transport/poller_test.cc", "for (absl::Duration wait", "when a timer runs that the test sets"),
]

DURATION = re.compile(
    r"\b(?:absl::(?P<absl>(?:Nano|Micro|Milli)?[Ss]econds)|chrono::(?P<chrono>(?:nano|micro|milli)?seconds))\(\s*(?P<number>[\d'.]+)"
)
HARMLESS = re.compile(
    r"\b(Advance|Pass|SleepFor|WaitUntil|After|WaitForTimer|Eventually|Await)\([^;]*$"
    r"|\b(EXPECT|ASSERT)_(GE|GT|EQ|DOUBLE_EQ)\([^;]*$"
    r"|\bwhile \([^;]*$"
    r"|[^-]>=?\s*$"
    r"|\bcompletion_queue(\(\w*\))?(\.|->)Wait\($"
)
NAMED = re.compile(r"(\w+)\s*(?:=|\{)\s*(?:absl::Now\(\) \+ )?[\s\d*]*$")
PYTHON = re.compile(
    r"\b(?:timeout\s*=\s*|settimeout\(|\.wait\(|\w*(?:PATIENCE|TIMEOUT)\w*\s*=\s*|\w*timeout\"\s*:\s*\"?)(?P<number>\d*\.?\d+)(?P<unit>ms|us|s)?\b"
)
SCRIPT = re.compile(
    r"(?:\btimeout(?:\s+--?\S+)*\s+|\bread\s+(?:-\S+\s+)*-t\s*|--\w*(?:timeout|life|deadline|patience)=)(?P<number>\d*\.?\d+)(?P<unit>ms|us|s)?(?![\w.])"
)


def short(number, unit):
    return 0 < float(number.replace("'", "").rstrip(".")) * UNITS[(unit or "").lower()] < LEAST_S


def begins(name):
    return name.startswith("kExpires") or re.sub(r"^k(?=[A-Z])", "", name).lower() in BEGINS


def faults_of_cpp(text):
    """Yields (offset, what) of each short time that is not known to be harmless."""
    code = re.sub(r"//[^\n]*", lambda found: " " * len(found[0]), text)
    if HEADERS_ON_TEST_CLOCK.search(code) and not READS_CLOCK.search(code):
        return
    for found in DURATION.finditer(code):
        if not short(found["number"], found["absl"] or found["chrono"]):
            continue
        statement = re.split(r"[;{}](?=\s*\n)", code[: found.start()])[-1].removesuffix("std::")
        name = NAMED.search(statement)
        if HARMLESS.search(statement) or (name and begins(name[1])):
            continue
        yield found.start(), code[found.start() :].split("\n", 1)[0]


def faults_of_words(pattern, text):
    for found in pattern.finditer(text):
        start = text.rfind("\n", 0, found.start()) + 1
        if not text[start : found.start()].lstrip().startswith("#") and short(found["number"], found["unit"]):
            yield found.start(), found[0]


def faults(path, text, exceptions=(), needed=None):
    """Texts of the faults of one file. Adds to the set `needed` the exceptions without which there would be more."""
    if ON_TEST_CLOCK.search(path):
        return []
    if path.endswith((".cc", ".h")):
        found = faults_of_cpp(text)
    elif path.endswith(".py"):
        found = faults_of_words(PYTHON, text)
    else:
        found = faults_of_words(SCRIPT, text)
    lines = text.split("\n")
    texts = []
    for offset, what in found:
        number = text.count("\n", 0, offset) + 1
        fitting = [each for each in exceptions if path == each[0] and each[1] in lines[number - 1]]
        if needed is not None:
            needed.update(fitting)
        if not fitting:
            texts.append(f"{path}:{number}: {what.strip()}: less than {LEAST_S} s of real time")
    return texts


class ClocksTest(unittest.TestCase):
    def found(self, path, text):
        return len(faults(path, text))

    def test_what_ends_too_soon_is_found(self):
        for line in (
            "SendAct(channel, 1, {.timeout = absl::Milliseconds(300)});",
            "options.connection.keepalive_timeout = absl::Milliseconds(\n    400);",
            "constexpr absl::Duration kLife = absl::Seconds(1);",
            "EXPECT_LT(absl::Now() - start, absl::Milliseconds(500));",
            "server.Shutdown(absl::Now() + absl::Seconds(0.5));",
            "proxy.Expect(std::chrono::milliseconds(1'999));",
            "TestClock clock;\nSendAct(channel, 1, {.timeout = absl::Seconds(1)});",
        ):
            self.assertEqual(self.found("tests/rpc/a_test.cc", line), 1, line)
        for line in ("wait(timeout=1)", "peer.settimeout(0.5)", "PATIENCE_S = 1", '{"scrape_timeout": "1s"}'):
            self.assertEqual(self.found("tests/a_test.py", line), 1, line)
        for line in ("timeout 1 tail -f x", "timeout --kill-after=5 1.5s run", "hawser call --timeout=200ms", "read -r -t 1 x"):
            self.assertEqual(self.found("tests/a_test.sh", line), 1, line)
        self.assertEqual(self.found("bench/BUILD.bazel", '"--raw_life=100ms",'), 1)

    def test_what_is_harmless_is_not(self):
        for line in (
            "SendAct(channel, 1, {.timeout = absl::Seconds(2)});  // Not absl::Seconds(1).",
            "SendAct(channel, 1, {.timeout = kExpires});",
            "constexpr absl::Duration kExpiresSoon = absl::Milliseconds(20);",
            "options.backoff_min = options.backoff_max = absl::Milliseconds(20);",
            "{.keepalive_interval = absl::Milliseconds(20)}",
            "clients.Pass(kLong - absl::Milliseconds(1));",
            "EXPECT_GE(absl::Now() - start, absl::Milliseconds(290));",
            "while (absl::Now() - start < absl::Milliseconds(30)) continue;",
            '#include "hawser/tests/transport/testing/world.h"\nlink.Send(call, absl::Milliseconds(5));',
        ):
            self.assertEqual(self.found("tests/rpc/a_test.cc", line), 0, line)
        self.assertEqual(self.found("tests/a_test.py", "wait(timeout=30)  # at least\n# timeout=1\n"), 0)
        self.assertEqual(self.found("tests/a_test.sh", "# timeout 1\ntimeout 300 run\nrun --timeout=5s"), 0)
        self.assertEqual(faults("a.cc", "f(absl::Seconds(1));", [("a.cc", "f(", "why")]), [])

    def test_no_test_depends_on_being_run_soon(self):
        texts, needed, count = [], set(), 0
        for folder in FOLDERS:
            for parent, _, files in os.walk(os.path.join(ROOT, folder)):
                for file in files:
                    if not file.endswith((".cc", ".h", ".py", ".sh")) and file != "BUILD.bazel":
                        continue
                    full = os.path.join(parent, file)
                    path = os.path.relpath(full, ROOT)
                    if path == "tests/layers/clocks_test.py":
                        continue
                    count += 1
                    with open(full, encoding="utf-8") as opened:
                        texts += faults(path, opened.read(), EXCEPTIONS, needed)
        self.assertGreater(count, 500)
        self.assertEqual(texts, [], "\n" + "\n".join(texts))
        self.assertEqual([each for each in EXCEPTIONS if each not in needed], [], "exceptions that nothing needs")


if __name__ == "__main__":
    # The sources of the checkout, not those that Bazel copies for this test.
    ROOT = os.path.realpath(__file__).rsplit("/tests/layers/", 1)[0]
    unittest.main()
