#!/usr/bin/python3 -B
"""Prints the ten compilations that took longest: dearest.py PROFILE..., files that `bazel --profile` wrote."""

import collections
import gzip
import json
import sys

COUNT = 10


def actions(path):
    """The seconds and the name of each action, without its wait for a processor. Nothing for a profile that Bazel did not
    write, or not to its end."""
    try:
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
    except (EOFError, OSError, ValueError):
        return
    # By thread, which does one action at a time.
    waits = collections.defaultdict(list)
    for event in events:
        if event.get("cat") == "action resource lock":
            waits[event["tid"]].append((event["ts"], event["dur"]))
    for event in events:
        if event.get("cat") == "action processing":
            start, end = event["ts"], event["ts"] + event["dur"]
            waited = sum(wait for at, wait in waits[event["tid"]] if start <= at <= end)
            yield (event["dur"] - waited) / 1e6, event["name"]


def main(profiles):
    compilations = [
        (seconds, name)
        for profile in profiles
        for seconds, name in actions(profile)
        if name.startswith("Compiling ")
    ]
    for seconds, name in sorted(compilations, reverse=True)[:COUNT]:
        print(f"{seconds:6.1f} s  {name.split(' ', 1)[1]}")
    total = sum(seconds for seconds, _ in compilations)
    print(f"All {len(compilations)} of them: {total:.0f} s. What the cache had is not among them.")


if __name__ == "__main__":
    main(sys.argv[1:])
