"""The bounds that the project sets itself, and whether these figures hold them."""

from dataclasses import dataclass

import words
from results import PLACE_OF_PIN, is_number

ADAPTIVE_RATIO_MAX = 1.2
BESIDE_BULK_RATIO_MAX = 3.0
TEN_PROCESSES_P99_US_MAX = 1000.0
TEN_PROCESSES_CORES_MAX = 0.01


@dataclass(frozen=True)
class Bound:
    rule: str
    held: bool
    text: str  # The figure that decided it, in a sentence.
    picture: str


def adaptive_ratios(results):
    """[(place, rate, adaptive p50, the better of the others, its mode)]"""
    found = []
    lines = {}
    for line in results.of("paced"):
        if line.get("pairs") == 1 and is_number(line.get("p50_us")) and line["p50_us"] > 0:
            lines[PLACE_OF_PIN.get(line.get("pin")), line.get("rate"), line.get("mode")] = line["p50_us"]
    for (place, rate, mode), p50_us in lines.items():
        others = [(lines[place, rate, other], other) for other in ("sleep", "spin") if (place, rate, other) in lines]
        if mode == "adaptive" and len(others) == 2:
            found.append((place, rate, p50_us, *min(others)))
    return found


def adaptive(results):
    ratios = adaptive_ratios(results)
    if not ratios:
        return None
    place, rate, p50_us, better_us, better = max(ratios, key=lambda each: each[2] / each[3])
    missed = sum(each[2] > ADAPTIVE_RATIO_MAX * each[3] for each in ratios)
    text = (
        f"The worst of {len(ratios)} places and loads is {words.ratio(p50_us / better_us)} times: {words.time(p50_us)}, where "
        f"mode {better} takes {words.time(better_us)} ({words.digits(rate)} calls a second, {words.PLACES[place]})."
    )
    rule = f"The adaptive mode takes at most {ADAPTIVE_RATIO_MAX:g} times what the better of sleep and spin takes (median)."
    if missed:
        text += f" {missed} of {len(ratios)} are above the bound."
    return Bound(rule, not missed, text, "waiting")


def beside_bulk(results):
    lines = [
        line
        for line in results.of("beside_bulk")
        if line.get("mode") == "adaptive" and is_number(line.get("ratio_p99")) and line.get("pin") in PLACE_OF_PIN
    ]
    if not lines:
        return None
    texts = [f"{words.ratio(line['ratio_p99'])} times with {words.PLACES[PLACE_OF_PIN[line['pin']]]}" for line in lines]
    held = all(line["ratio_p99"] <= BESIDE_BULK_RATIO_MAX for line in lines)
    rule = (
        f"The 99th percentile of small calls beside 4 puts of 16 MiB is at most {BESIDE_BULK_RATIO_MAX:g} times that of calls "
        "alone."
    )
    return Bound(rule, held, f"It is {words.listed(texts)}.", "bulk")


def ten_processes(results):
    line = results.of_paced("adaptive", "any", 100, pairs=5) or next(
        (line for line in results.of("paced") if line.get("pairs") == 5), None
    )
    if not line or not all(is_number(line.get(name)) for name in ("p99_us", "cores_of_each")):
        return None
    fast = line["p99_us"] < TEN_PROCESSES_P99_US_MAX
    idle = line["cores_of_each"] <= TEN_PROCESSES_CORES_MAX
    rule = (
        f"Five clients that call 100 times a second, and their servers: 99th percentile below "
        f"{TEN_PROCESSES_P99_US_MAX / 1000:g} ms, and at most {TEN_PROCESSES_CORES_MAX:g} of a core for each process."
    )
    text = f"It is {words.time(line['p99_us'])}, with {words.digits(line['cores_of_each'], 2)} of a core for each."
    return Bound(rule, fast and idle, text, "processes")


def bounds(results):
    """Those for which there are figures."""
    return [bound for bound in (adaptive(results), beside_bulk(results), ten_processes(results)) if bound]
