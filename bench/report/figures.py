"""The figures of bench/peers, by system and point, in the forms that pictures need."""

import words
from chart import Curve
from compare import Comparison
from picture import optional
from plan import Point
from results import POINT_FIELDS, is_number

PEER_COLUMNS = (
    "system", "cores", "size", "in flight", "connections", "calls/s", "p50", "p90", "p99", "p99.9", "max",
    "p50 of the rounds", "CPU client", "CPU server", "calls",
)


def peer_row(line):
    low, high = line.get("p50_us_low"), line.get("p50_us_high")
    return [
        words.system(line["system"]),
        words.PLACES.get(line["place"], line["place"]),
        words.size(line["bytes"]),
        str(line["in_flight"]),
        f"{line['connections']:,}",
        words.rate(line["calls_per_s"]),
        *(optional(line, name, words.time) for name in ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")),
        f"{words.time(low)} – {words.time(high)}" if line["rounds"] > 1 else "one round",
        optional(line, "client_cpu_us", words.time),
        optional(line, "server_cpu_us", words.time),
        optional(line, "calls", lambda calls: f"{calls:,.0f}"),
    ]


class Peers:
    """Lines of bench/peers, by system and point."""

    def __init__(self, results):
        self.results = results
        self.systems = results.systems()
        self.known = {}
        for line in results.of("peers"):
            if "skipped" not in line:
                try:
                    point = Point(*(line[name] for name in POINT_FIELDS))
                    self.known.setdefault(Point(point.workload, str(point.place), *map(int, (
                        point.bytes, point.in_flight, point.connections, point.rate))), None)
                except (KeyError, TypeError, ValueError):
                    continue

    def points(self, wanted):
        """Those that were measured, of any system."""
        return sorted((point for point in self.known if wanted(point)), key=lambda point: (
            point.bytes, point.in_flight, point.connections, point.rate))

    def line(self, system, point):
        return self.results.point(system, point)

    def curves(self, points, x, y):
        found = []
        for system in self.systems:
            lines = [(point, self.line(system, point)) for point in points]
            values = [(x(point), y(line)) for point, line in lines if line]
            found.append(Curve(system, words.short(system), [each for each in values if each[0] > 0 and each[1] > 0]))
        return found

    def rows(self, points):
        lines = [self.line(system, point) for point in points for system in self.systems]
        return [peer_row(line) for line in lines if line]

    def compare(self, picture, kind, points, value, at, condition=""):
        found = []
        for other in self.systems:
            for point in points if other != "hawser" else ():
                ours, theirs = self.line("hawser", point), self.line(other, point)
                if ours and theirs and (value(ours) or 0) > 0 and (value(theirs) or 0) > 0:
                    found.append(Comparison(picture, kind, condition, at(point), other, value(ours), value(theirs)))
        return found


def p50(line):
    return line["p50_us"]


def p99(line):
    return line["p99_us"]


# Of fewer calls, less than ten are beyond the 99th percentile, so it changes from run to run.
P99_CALLS_MIN = 1000


def has_p99(line):
    return is_number(line.get("calls")) and line["calls"] >= P99_CALLS_MIN


def p99_to_compare(line):
    """0, which is not compared, if it is of too few calls."""
    return p99(line) if has_p99(line) else 0


def few_calls_text(lines):
    """For the caption of a picture of these lines: "" if all of them have calls enough."""
    few = [line for line in lines if not has_p99(line)]
    return f" A p99 of fewer than {P99_CALLS_MIN:,} calls is noise and is not compared." if few else ""


def per_s(line):
    return line["calls_per_s"]


def cpu(line):
    both = [line.get(name) for name in ("client_cpu_us", "server_cpu_us")]
    return sum(both) if all(map(is_number, both)) else 0


def of_size(point):
    return words.size(point.bytes)


def nowhere(_):
    """Of a comparison at one point only, which its condition names."""
    return ""


def leads(peers, points, value, best=min):
    """How many points Hawser is first at, of those that it and another system but the floor have."""
    first = count = 0
    for point in points:
        lines = [line for line in (peers.line(system, point) for system in peers.systems if system != "raw") if line]
        if len(lines) > 1 and any(line["system"] == "hawser" for line in lines):
            count += 1
            first += best(lines, key=value)["system"] == "hawser"
    return first, count


def figures(peers, point, value, write):
    """ "Hawser 21 µs, raw socket 17 µs"."""
    lines = [peers.line(system, point) for system in peers.systems]
    return ", ".join(f"{words.system(line['system'])} {write(value(line))}" for line in lines if line)


def first_text(first, count, noun):
    if not count:
        return ""
    return f" Hawser is first of the RPC systems at {first} of {words.plural(count, noun)}."
