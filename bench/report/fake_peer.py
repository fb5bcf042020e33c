#!/usr/bin/python3 -B
"""Stands in for a program of bench/peers: prints a line for each point at once, made up from its system's name.

    fake_peer.py --system=NAME [--slow=FACTOR] [--fail|--hang|--garbage|--skip=TEXT] --points=... --seconds=S
"""

import argparse
import json
import math
import random
import signal
import sys

# How long a small call takes, a copied GiB takes, and a call costs when many are in flight.
SYSTEMS = {
    "raw": (14, 0.35e6, 0.5),
    "hawser": (19, 0.55e6, 3.2),
    "capnp_rpc": (31, 1.3e6, 9),
    "grpc": (62, 1.6e6, 21),
    "thrift": (24, 0.9e6, 14),
}


def line(system, text, slow, dice):
    workload, place, size, in_flight, connections, rate = text.split(":")
    size, in_flight, connections, rate = int(size), int(in_flight), int(connections), int(rate)
    base, gib, busy = SYSTEMS[system]
    one = slow * (base + size / (1 << 30) * gib) * (0.7 if place == "1" else 1) * dice.uniform(0.95, 1.05)
    if workload == "paced":
        one = one * 1.5 + (40 if rate < 1000 else 0)
    if workload == "bulk":
        one = one * (1.6 if system == "hawser" else 9) + 4
    each = one if in_flight == 1 else max(slow * busy * (1 + connections / 4000), one * in_flight / 6 / in_flight)
    p50 = one if in_flight == 1 else each * in_flight
    histogram = {}
    for _ in range(3000):
        value = p50 * dice.lognormvariate(0, 0.12) * (6 if dice.random() < 0.012 else 1)
        upper = round(1.1 ** (int(math.log(value, 1.1)) + 1), 3)
        histogram[upper] = histogram.get(upper, 0) + 1
    return {
        "bench": "peers", "system": system, "workload": workload, "place": place, "bytes": size, "in_flight": in_flight,
        "connections": connections, "rate": rate, "calls": 3000, "calls_per_s": rate or 1e6 / each, "mean_us": p50 * 1.05,
        "p50_us": p50, "p90_us": p50 * 1.2, "p99_us": p50 * 2.2, "p999_us": p50 * 6, "max_us": p50 * 9,
        "client_cpu_us": each * 0.55, "server_cpu_us": each * 0.45, "histogram": sorted(histogram.items()),
    }


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--system", required=True)
    parser.add_argument("--slow", type=float, default=1)
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--garbage", action="store_true")
    parser.add_argument("--skip", default="")
    parser.add_argument("--points", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    dice = random.Random(options.system + options.points)
    for i, point in enumerate(options.points.split(",")):
        value = line(options.system, point, options.slow, dice)
        if options.skip:
            value = {name: value[name] for name in list(value)[:8]} | {"skipped": options.skip}
        print(json.dumps(value), flush=True)
        if options.garbage:
            print("all is well", flush=True)
        if options.hang:
            signal.pause()
        if options.fail:
            sys.exit("fake_peer: <no> such \"address\"")


if __name__ == "__main__":
    main()
