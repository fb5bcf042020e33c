"""The bounds that the project sets itself, and whether these figures hold them."""

from dataclasses import dataclass

import words
from results import PLACE_OF_PIN, is_number

ADAPTIVE_RATIO_MAX = 1.2
BESIDE_BULK_RATIO_MAX = 3.0
TEN_PROCESSES_P99_US_MAX = 1000.0
TEN_PROCESSES_CORES_MAX = 0.01


PLACES_MEASURED = 3
RATES_MEASURED = 2


@dataclass(frozen=True)
class Bound:
    rule: str
    figures: int  # How many there are.
    missed: int  # How many of them are above the bound.
    expected: int  # How many a whole report measures.
    text: str  # The figure that decided it, in a sentence.
    picture: str

    @property
    def verdict(self):
        """ "missed", "held", or "partial": it is held as far as it was measured."""
        return "missed" if self.missed else "held" if self.figures >= self.expected else "partial"

    @property
    def word(self):
        if self.verdict != "partial":
            return self.verdict
        absent = self.expected - self.figures
        return f"held at {self.figures} of {self.expected}; {absent} {words.was(absent)} not measured"


def adaptive_is_held(ratio):
    return words.rounded_ratio(ratio) <= ADAPTIVE_RATIO_MAX


def missed_text(missed, count, expected):
    """ "" if one figure is all there is: it says so itself."""
    if not missed or expected == 1:
        return ""
    text = f" {missed} of {words.plural(count, 'figure')} {words.are(missed)} above the bound"
    absent = expected - count
    return text + (f"; {absent} more {words.was(absent)} not measured." if absent > 0 else ".")


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
    missed = sum(not adaptive_is_held(each[2] / each[3]) for each in ratios)
    expected = PLACES_MEASURED * RATES_MEASURED
    which = f"The worst of {len(ratios)} figures" if len(ratios) > 1 else "The only figure"
    text = (
        f"{which} is {words.ratio(p50_us / better_us)} times: {words.time(p50_us)}, where "
        f"mode {better} takes {words.time(better_us)} ({words.digits(rate)} calls a second, {words.PLACES[place]})."
    )
    most = words.ratio(ADAPTIVE_RATIO_MAX)
    rule = f"The adaptive mode takes at most {most} times what the better of sleep and spin takes (median)."
    text += missed_text(missed, len(ratios), expected)
    return Bound(rule, len(ratios), missed, expected, text, "waiting")


def beside_bulk(results):
    lines = [
        line
        for line in results.of("beside_bulk")
        if line.get("mode") == "adaptive" and is_number(line.get("ratio_p99")) and line.get("pin") in PLACE_OF_PIN
    ]
    if not lines:
        return None
    texts = [f"{words.ratio(line['ratio_p99'])} times with {words.PLACES[PLACE_OF_PIN[line['pin']]]}" for line in lines]
    missed = sum(words.rounded_ratio(line["ratio_p99"]) > BESIDE_BULK_RATIO_MAX for line in lines)
    rule = (
        "The 99th percentile of small calls beside 4 puts of 16 MiB is at most "
        f"{words.ratio(BESIDE_BULK_RATIO_MAX)} times that of calls alone."
    )
    text = f"It is {words.listed(texts)}." + missed_text(missed, len(lines), PLACES_MEASURED)
    return Bound(rule, len(lines), missed, PLACES_MEASURED, text, "bulk")


def ten_processes(results):
    line = results.of_paced("adaptive", "any", 100, pairs=5)
    if not line or not all(is_number(line.get(name)) for name in ("p99_us", "cores_of_each")):
        return None
    fast = words.rounded(line["p99_us"]) < TEN_PROCESSES_P99_US_MAX
    idle = words.rounded(line["cores_of_each"], 2) <= TEN_PROCESSES_CORES_MAX
    rule = (
        f"Five clients that call 100 times a second, and their servers: 99th percentile below "
        f"{TEN_PROCESSES_P99_US_MAX / 1000:g} ms, and at most {TEN_PROCESSES_CORES_MAX:g} of a core for each process."
    )
    text = f"It is {words.time(line['p99_us'])}, with {words.digits(line['cores_of_each'], 2)} of a core for each."
    return Bound(rule, 1, int(not (fast and idle)), 1, text, "processes")


ALL = (adaptive, beside_bulk, ten_processes)


def bounds(results):
    """Those for which there are figures."""
    return [bound for find in ALL if (bound := find(results))]
