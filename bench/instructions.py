#!/usr/bin/python3 -B
"""How many instructions does a small call take at each side, a small one-sided READ, and where?

    ./bazelw run //bench:instructions

Runs examples/echo, optimised, client and server both under callgrind and on a core of their own, with two counts of calls.
The difference in instructions, divided by the difference in calls, is the cost of one call without start and end. Prints a
table for 64 calls in flight and one for one at a time, by layer. The same for READs of bench/read_client.cc, which the poller
of the server answers: this is TCP.

    --calls=10000      calls, or READs, that the second run makes more
    --size=32          bytes that are sent, and come back
    --sums=FILE        what sums were when they were last looked at: measures only those, and fails if one has grown by
                       more than 5 % each of three times
    --what=read        only READs; call: only calls
    --functions=N      also the N most expensive functions of each side

The figures repeat to a percent or two on one machine: how many calls leave together, and how often a thread polls and finds
nothing, depend on the time, and on what else the machine does. So a sum that has grown is measured again. Another compiler, or other
versions of the libraries, have other figures. Where a growth is wanted, write the new sums into bench/instructions.txt.
"""

import argparse
import collections
import os
import re
import signal
import subprocess
import sys
import tempfile

FEW = 2000
GROWTH_MAX = 1.05
TRIES = 3
WHATS = ["call", "read"]
PARTS = ["program and stub", "rpc and base", "transport", "fabric", "Cap'n Proto", "abseil", "libc and others"]
# The client's own clock and histogram, no part of a call: how long absl::Now() takes depends on the time.
CLOCK = "the program's own clock, not counted"


def part_of(function, library):
    """The layer that `function` belongs to; `library`: the file that it is in."""
    if re.search(r"\bGetCurrentTimeNanos|\babsl::(debian3::)?Now\(\)|\bexamples::Histogram::", function):
        return CLOCK
    if found := re.search(r"\bhawser::(fabric|transport|bench|echo|kv)?", function):
        layers = {"fabric": "fabric", "transport": "transport", None: "rpc and base"}
        return layers.get(found[1], "program and stub")
    library = os.path.basename(library)
    if re.match(r"lib(capnp|kj)", library) or re.match(r"(\w+ )*(capnp|kj)::", function):
        return "Cap'n Proto"
    if library.startswith("libabsl") or re.match(r"(\w+ )*absl::", function):
        return "abseil"
    if re.match("echo_|read_client", library) and not function.startswith("std::"):
        return "program and stub"
    return "libc and others"


def read_profile(path):
    """Instructions by (function, library), not counting what it calls. The format: callgrind's manual, 'Callgrind Format
    Specification'."""
    names = {"fn": {}, "ob": {}}
    costs = collections.Counter()
    here = {"fn": "", "ob": ""}
    of_callee = False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if found := re.match(r"c?(fn|ob)=\((\d+)\)(?: (.*))?", line):
                kind, number, name = found.groups()
                if name is not None:
                    names[kind][number] = name
                if line[0] != "c":
                    here[kind] = names[kind][number]
            elif line.startswith("calls="):
                of_callee = True
            elif line[0] in "+-*0123456789":
                if not of_callee:
                    costs[here["fn"], here["ob"]] += int(line.split()[1])
                of_callee = False
    return costs


class Callgrind:
    """A program under callgrind, on one core."""

    def __init__(self, folder, core, command):
        self.profile = os.path.join(folder, os.path.basename(command[0]))
        cores = sorted(os.sched_getaffinity(0))
        self.process = subprocess.Popen(
            ["valgrind", "--quiet", "--tool=callgrind", "--callgrind-out-file=" + self.profile, *command],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {cores[core % len(cores)]}),
        )

    def end(self):
        status = self.process.wait(timeout=300)
        if status != 0:
            sys.exit(f"{self.process.args[-1]}: exit status {status}")
        return read_profile(self.profile)


def run(options, what, in_flight, calls):
    """(costs at the client, costs at the server)"""
    program = {"call": options.client, "read": options.reader}[what]
    with tempfile.TemporaryDirectory() as folder:
        server = Callgrind(folder, 0, [options.server, "--listen=tcp://127.0.0.1:0", "--polling=sleep", "--perf"])
        try:
            address = re.search(r"tcp://[\d.]+:\d+", server.process.stdout.readline())[0]
            client = Callgrind(
                folder,
                1,
                [program, f"--target={address}", f"--count={calls}", f"--size={options.size}"]
                + [f"--in_flight={in_flight}", "--polling=sleep"],
            )
            costs = client.end()
        finally:
            server.process.send_signal(signal.SIGTERM)
        return costs, server.end()


def measure(options, what, in_flight):
    """What a call, or a READ, takes: by side, by (function, library)."""
    few = run(options, what, in_flight, FEW)
    many = run(options, what, in_flight, FEW + options.calls)
    return {
        side: {key: (more[key] - less[key]) / options.calls for key in more | less}
        for side, less, more in zip(("client", "server"), few, many)
    }


def by_part(costs):
    sums = dict.fromkeys([*PARTS, CLOCK], 0)
    for (function, library), cost in costs.items():
        sums[part_of(function, library)] += cost
    return sums


def report(what, in_flight, measured, functions):
    """The sums, by side. `client_above_fabric`: without what is in the fabric."""
    how_many = f"{in_flight} in flight" if in_flight > 1 else "one at a time"
    print(f"\n{f'instructions a {what}, {how_many}':<50}{'client':>10}{'server':>10}")
    parts = {side: by_part(costs) for side, costs in measured.items()}
    for part in PARTS:
        print(f"  {part:<48}{parts['client'][part]:>10.0f}{parts['server'][part]:>10.0f}")
    sums = {side: sum(parts[side][part] for part in PARTS) for side in parts}
    print(f"  {'all':<48}{sums['client']:>10.0f}{sums['server']:>10.0f}")
    print(f"  {CLOCK:<48}{parts['client'][CLOCK]:>10.0f}{parts['server'][CLOCK]:>10.0f}")
    sums["client_above_fabric"] = sums["client"] - parts["client"]["fabric"]
    for side, costs in measured.items() if functions else ():
        print(f"  the most expensive functions of the {side}:")
        for (function, _), cost in sorted(costs.items(), key=lambda each: -each[1])[:functions]:
            print(f"  {cost:>8.0f}  {function[:110]}")
    return sums


def read_sums(path):
    """{(call or read, in flight): {side: instructions}}"""
    sums = collections.defaultdict(dict)
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                what, side, in_flight, instructions = line.split()
                sums[what, int(in_flight)][side] = int(instructions)
    return sums


def grown(what, in_flight, now, before):
    """Texts of the sums of `now`, by side, that are above what they were before."""
    texts = []
    for side, was in before.items():
        change = f"{side}, {in_flight} in flight: {now[side]:.0f} instructions a {what}, it was {was}"
        if now[side] > was * GROWTH_MAX:
            texts.append(change)
        elif now[side] < was / GROWTH_MAX:
            print(f"{change}: lower it in instructions.txt")
    return texts


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--server", required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--reader", required=True)
    parser.add_argument("--what", choices=WHATS)
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--sums")
    parser.add_argument("--functions", type=int, default=0)
    options = parser.parse_args()
    before = read_sums(options.sums) if options.sums else {(what, n): {} for what in WHATS for n in (64, 1)}
    texts = []
    for (what, in_flight), were in before.items():
        if options.what not in (None, what):
            continue
        least = report(what, in_flight, measure(options, what, in_flight), options.functions)
        for _ in range(TRIES - 1):
            if not any(least[side] > was * GROWTH_MAX for side, was in were.items()):
                break
            sums = report(what, in_flight, measure(options, what, in_flight), options.functions)
            least = {side: min(least[side], sums[side]) for side in least}
        texts += grown(what, in_flight, least, were)
    for text in texts:
        print(f"FAILED: {text}: more than 5 % more", file=sys.stderr)
    sys.exit(1 if texts else 0)


if __name__ == "__main__":
    main()
