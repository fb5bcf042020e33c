"""What was measured, as it is saved, and medians over rounds."""

import json
import math
import statistics
from dataclasses import asdict, dataclass, field

FORMAT = 1
POINT_FIELDS = ("workload", "place", "bytes", "in_flight", "connections", "rate")
PLACE_OF_PIN = {"one core": "1", "two cores": "2", "any core": "any"}


class FormatError(Exception):
    """A file that is no saved report."""


@dataclass
class Results:
    mode: str
    about: dict = field(default_factory=dict)  # Name and text of the machine, the commit, ...
    versions: dict = field(default_factory=dict)  # By system.
    absent: dict = field(default_factory=dict)  # System: why it was not measured.
    failures: list = field(default_factory=list)  # {"program", "own", "text"}
    lines: list = field(default_factory=list)  # What programs printed; those of one point differ in "round".
    busy_before: float = 0  # Share of the cores that other programs used before the measurement.
    stolen: float = 0  # Share of the cores that the hypervisor gave to other guests meanwhile.
    point_seconds: float = 0
    rounds: int = 0

    def to_json(self):
        return json.dumps({"hawser_report": FORMAT, **asdict(self)}, indent=None, separators=(",", ":"))

    @staticmethod
    def from_json(text):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise FormatError(f"no JSON: {error}") from None
        if not isinstance(value, dict) or value.pop("hawser_report", None) != FORMAT:
            raise FormatError(f"no report of format {FORMAT}")
        try:
            results = Results(**value)
        except TypeError as error:
            raise FormatError(f"no report of format {FORMAT}: {error}") from None
        if not all(isinstance(line, dict) for line in [*results.lines, *results.failures]):
            raise FormatError("a line is no object")
        return results

    def systems(self):
        """Those with lines, Hawser first."""
        order = ["hawser", "raw", "capnp_rpc", "grpc", "thrift"]
        found = {line.get("system") for line in self.of("peers")}
        return [name for name in order if name in found]

    def of(self, bench):
        return [line for line in self.lines if line.get("bench") == bench]

    def point(self, system, point):
        """The medians over the rounds of one point; None if there is none."""
        wanted = tuple(str(getattr(point, name)) for name in POINT_FIELDS)
        lines = [
            line
            for line in self.of("peers")
            if line.get("system") == system
            and "skipped" not in line
            and tuple(str(line.get(name)) for name in POINT_FIELDS) == wanted
        ]
        return medians(lines) if lines else None

    def skipped(self):
        """{(system, why): points} that a program said it does not measure."""
        texts = {}
        for line in self.of("peers"):
            if "skipped" in line:
                point = ":".join(str(line.get(name)) for name in POINT_FIELDS)
                points = texts.setdefault((line.get("system"), str(line["skipped"])), [])
                if point not in points:
                    points.append(point)
        return texts

    def of_paced(self, mode, place, rate, pairs=1):
        for line in self.of("paced"):
            same = line.get("mode") == mode and PLACE_OF_PIN.get(line.get("pin")) == place
            if same and line.get("rate") == rate and line.get("pairs") == pairs:
                return line
        return None


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# Of several rounds: the calls of all of them, and the longest of these calls.
OVER_ROUNDS = {"calls": sum, "max_us": max}


def medians(lines):
    """One line of several rounds: the median of each number, and its lowest and highest value. OVER_ROUNDS names the
    exceptions. The histogram is the sum of all."""
    merged = dict(lines[0])
    for name in lines[0]:
        values = [line.get(name) for line in lines if is_number(line.get(name))]
        if values and name not in POINT_FIELDS:
            merged[name] = OVER_ROUNDS.get(name, statistics.median)(values)
            merged[name + "_low"], merged[name + "_high"] = min(values), max(values)
    merged["rounds"] = len(lines)
    merged["histogram"] = add_histograms([line.get("histogram") or [] for line in lines])
    return merged


def add_histograms(histograms):
    counts = {}
    for histogram in histograms:
        for upper, count in histogram:
            counts[upper] = counts.get(upper, 0) + count
    return sorted([upper, count] for upper, count in counts.items())


REQUIRED = ("calls_per_s", "p50_us", "p99_us")


def fault(line):
    """Why a line of bench/peers says nothing; "" if it does."""
    missing = [name for name in ("system", *POINT_FIELDS) if name not in line]
    if missing:
        return f"a line without {', '.join(missing)}"
    if "skipped" in line:
        return ""
    wrong = [name for name in REQUIRED if not is_number(line.get(name)) or line[name] <= 0]
    if wrong:
        return f"a line of {line['workload']} without a positive {', '.join(wrong)}"
    histogram = line.get("histogram", [])
    pairs = isinstance(histogram, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(map(is_number, pair)) for pair in histogram
    )
    return "" if pairs else "a histogram that is no list of pairs of numbers"
