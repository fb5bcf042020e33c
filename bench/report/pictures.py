"""The eleven pictures: from results to charts, the sentence that says how to read them, comparisons, and a table."""

from dataclasses import dataclass, field

import bounds
import chart
import words
from chart import SHAPES, SHAPES_OF_MODES, Curve, Range, Rows
from compare import Comparison
from plan import SMALL, Point
from results import PLACE_OF_PIN, POINT_FIELDS, is_number


@dataclass
class Picture:
    key: str
    title: str
    charts: list = field(default_factory=list)
    reading: str = ""
    comparisons: list = field(default_factory=list)
    columns: tuple = ()
    rows: list = field(default_factory=list)  # Texts, one for each column; the first is that of a system or mode.
    notes: list = field(default_factory=list)

    @property
    def empty(self):
        return not self.rows


PEER_COLUMNS = (
    "system", "cores", "size", "in flight", "connections", "calls/s", "p50", "p90", "p99", "p99.9", "max",
    "p50 of the rounds", "CPU client", "CPU server", "calls",
)  # fmt: skip


def optional(line, name, write):
    return write(line[name]) if is_number(line.get(name)) else "–"


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
                        point.bytes, point.in_flight, point.connections, point.rate))), None)  # fmt: skip
                except (KeyError, TypeError, ValueError):
                    continue

    def points(self, wanted):
        """Those that were measured, of any system."""
        return sorted((point for point in self.known if wanted(point)), key=lambda point: (
            point.bytes, point.in_flight, point.connections, point.rate))  # fmt: skip

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


def one_at_a_time(place):
    return lambda point: point == Point(place=place, bytes=point.bytes)


def fastest(lines, value, best=min):
    """The system with the best figure of several lines."""
    return words.system(best(lines, key=value)["system"])


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


def latency(results):
    peers = Peers(results)
    picture = Picture("latency", "Latency of one call, by size", columns=PEER_COLUMNS)
    relative, texts = [], []
    for place in ("2", "1"):
        points = peers.points(one_at_a_time(place))
        if not points:
            continue
        name = words.PLACES[place]
        title = f"Median latency of one call by size, {name}"
        picture.charts.append(
            chart.curves(title, figures(peers, points[0], p50, words.time) + f" at {of_size(points[0])}",
                         peers.curves(points, lambda point: point.bytes, p50), name.capitalize(),
                         "bytes sent, and sent back", "bytes", "median latency, one call at a time", "us")
        )  # fmt: skip
        if any(peers.line("raw", point) for point in points):
            relative.append(relative_chart(peers, points, name))
        picture.comparisons += peers.compare("latency", "time", points, p50, of_size, name)
        picture.rows += peers.rows(points)
        first, count = leads(peers, points, p50)
        small = next((point for point in points if point.bytes == SMALL), points[0])
        texts.append(
            f"With {name}, {of_size(small)} take: {figures(peers, small, p50, words.time)}." + first_text(first, count, "size")
        )
    picture.charts += relative
    picture.reading = "Lower is better; the lower row shows the same as multiples of the raw socket. " + " ".join(texts)
    return picture


def relative_chart(peers, points, name):
    series = []
    for system in peers.systems:
        values = []
        for point in points:
            line, floor = peers.line(system, point), peers.line("raw", point)
            if line and floor:
                values.append((point.bytes, p50(line) / p50(floor)))
        series.append(Curve(system, words.short(system), values))
    return chart.curves(f"Median latency as a multiple of the raw socket, {name}", "1 is the raw socket", series,
                        f"Beside the floor, {name}", "bytes sent, and sent back", "bytes", "median latency / raw socket",
                        "times", height=250, y_base=2)  # fmt: skip


def in_flight(results):
    peers = Peers(results)
    picture = Picture("in_flight", "Calls a second, by calls in flight", columns=PEER_COLUMNS)
    texts = []
    for place in ("2", "1"):
        points = peers.points(lambda point: point == Point(place=place, in_flight=point.in_flight))
        if len(points) < 2:
            continue
        name = words.PLACES[place]
        most = points[-1]
        picture.charts.append(
            chart.curves(f"Calls of {SMALL} B a second by calls in flight, {name}", figures(peers, most, per_s, words.rate),
                         peers.curves(points, lambda point: point.in_flight, per_s), name.capitalize(), "calls in flight",
                         "", f"calls of {SMALL} B a second, one connection", "per_s")
        )  # fmt: skip
        at = lambda point: f"{point.in_flight} in flight"
        picture.comparisons += peers.compare("in_flight", "rate", points, per_s, at, name)
        picture.rows += peers.rows(points)
        first, count = leads(peers, points, per_s, max)
        texts.append(f"With {name} and {most.in_flight} in flight: {figures(peers, most, per_s, words.rate)} calls a second."
                     + first_text(first, count, "point"))  # fmt: skip
    picture.reading = (
        "Higher is better. The raw socket sends a whole batch with one system call, so it is a floor of the bytes, not of calls. "
        + " ".join(texts)
    )
    return picture


def connections(results):
    peers = Peers(results)
    picture = Picture("connections", "Calls a second, by connections", columns=PEER_COLUMNS)
    all_points = lambda point: point == Point(connections=point.connections, in_flight=max(64, point.connections))
    points = peers.points(all_points)
    if len(points) > 1:
        most = points[-1]
        picture.charts.append(
            chart.curves(f"Calls of {SMALL} B a second by connections", figures(peers, most, per_s, words.rate),
                         peers.curves(points, lambda point: point.connections, per_s), words.PLACES["2"].capitalize(),
                         "connections", "", f"calls of {SMALL} B a second", "per_s", x_base=10)
        )  # fmt: skip
        at = lambda point: words.plural(point.connections, "connection")
        picture.comparisons = peers.compare("connections", "rate", points, per_s, at)
        picture.rows = peers.rows(points)
        first, count = leads(peers, points, per_s, max)
        picture.reading = (
            "Higher is better: 64 calls are in flight in all, or one on each connection when there are more. With "
            f"{most.connections:,} connections: {figures(peers, most, per_s, words.rate)} calls a second."
            + first_text(first, count, "point")
        )
    idle_connections(results, picture)
    return picture


def idle_connections(results, picture):
    for line in results.of("connections"):
        names = [f"idle_{side}_{what}_kib" for side in ("client", "server") for what in ("leased", "heap", "resident")]
        if not all(is_number(line.get(name)) for name in [*names, "connections", "connect_us", "floor_us"]):
            continue
        client = line["idle_client_leased_kib"] + line["idle_client_heap_kib"]
        server = line["idle_server_leased_kib"] + line["idle_server_heap_kib"]
        picture.notes.append(
            f"Each of {line['connections']:,.0f} idle connections of Hawser takes {words.digits(client)} KiB of registered memory "
            f"and heap at the client and {words.digits(server)} KiB at the server "
            f"(resident: {words.digits(line['idle_client_resident_kib'])} and "
            f"{words.digits(line['idle_server_resident_kib'])} KiB). To connect takes {words.time(line['connect_us'])}, "
            f"{words.ratio(line['connect_us'] / line['floor_us'])} times what a raw socket takes."
        )


def throughput(results):
    peers = Peers(results)
    picture = Picture("throughput", "Throughput, by size", columns=PEER_COLUMNS)
    points = peers.points(lambda point: point == Point(bytes=point.bytes, in_flight=4) and point.bytes >= 1024)
    if points:
        gib = lambda line: line["calls_per_s"] * line["bytes"] / (1 << 30)
        picture.charts.append(
            chart.curves("Throughput by size, each way", figures(peers, points[-1], gib, words.digits) + " GiB/s",
                         peers.curves(points, lambda point: point.bytes, gib), words.PLACES["2"].capitalize(),
                         "bytes sent, and sent back", "bytes", "GiB/s each way, 4 calls in flight", "", linear=True)
        )  # fmt: skip
        picture.comparisons = peers.compare("throughput", "bytes", points, gib, of_size)
        picture.rows = peers.rows(points)
        first, count = leads(peers, points, gib, max)
        best = max((line for point in points if (line := peers.line("hawser", point))), key=gib, default=None)
        peak = f" Hawser moves {words.digits(gib(best))} GiB/s each way at {words.size(best['bytes'])}." if best else ""
        picture.reading = "Higher is better." + peak + first_text(first, count, "size")
    return picture


def histograms(results):
    peers = Peers(results)
    picture = Picture("histograms", "How latency is spread", columns=PEER_COLUMNS)
    texts = []
    for point, name in ((Point(), "one call at a time"), (Point(in_flight=64), "64 calls in flight")):
        lines = [line for line in (peers.line(system, point) for system in peers.systems) if line]
        series = []
        for line in lines:
            if bins := chart.bins_of(line["histogram"]):
                marks = [(p50(line), f"p50 {words.time(p50(line))}"), (p99(line), f"p99 {words.time(p99(line))}")]
                series.append((line["system"], words.short(line["system"]), bins, marks))
        if not series:
            continue
        picture.charts.append(
            chart.ridges(f"Latency of calls of {SMALL} B, {name}", figures(peers, point, p99, words.time) + " (p99)", series,
                         f"{SMALL} B, {name}", "us", "latency; height is the share of calls")
        )  # fmt: skip
        picture.rows += peers.rows([point])
        spread = [(line["system"], p99(line) / p50(line)) for line in lines]
        texts.append(f"{name.capitalize()}, p99 is " + ", ".join(
            f"{words.ratio(times)}{'' if i else ' times p50'} with {words.the(system)}"
            for i, (system, times) in enumerate(spread)) + ".")  # fmt: skip
        picture.comparisons += peers.compare("histograms", "p99", [point], p99, nowhere, name)
    picture.reading = "Further left is faster, narrower is steadier; the two strokes in each row are p50 and p99. " + " ".join(texts)
    return picture


PERCENTILE_KEYS = (("raw", "circle", False, "p50"), ("raw", "circle", True, "p99"))


def percentiles(line, name=None):
    shape = SHAPES.get(line["system"], "circle")
    return Range(line["system"], name or words.short(line["system"]), [(p50(line), shape, False), (p99(line), shape, True)],
                 f"{words.time(p50(line))} – {words.time(p99(line))}")  # fmt: skip


def paced(results):
    peers = Peers(results)
    picture = Picture("paced", "Calls at an even rate", columns=("system", "calls wanted/s", *PEER_COLUMNS[1:]))
    texts = []
    points = peers.points(lambda point: point.workload == "paced")
    for rate in sorted({point.rate for point in points}):
        groups = []
        for place in ("2", "1", "any"):
            at_rate = [point for point in points if point.rate == rate and point.place == place]
            lines = [line for point in at_rate for system in peers.systems if (line := peers.line(system, point))]
            if lines:
                groups.append(Rows(words.PLACES[place], [percentiles(line) for line in lines]))
                picture.rows += [[row[0], words.digits(rate), *row[1:]] for row in map(peer_row, lines)]
            at = lambda point: f"{words.digits(rate)} calls a second"
            for kind, value in (("time", p50), ("p99", p99)):
                picture.comparisons += peers.compare("paced", kind, at_rate, value, at, words.PLACES[place])
        picture.charts.append(
            chart.ranges(f"Latency at {words.digits(rate)} calls a second", "p50 and p99 by system", groups,
                         f"{words.digits(rate)} calls a second", "us", f"latency of a call of {SMALL} B",
                         keys=PERCENTILE_KEYS)
        )  # fmt: skip
        first = next((point for point in points if point.rate == rate), None)
        texts.append(f"At {words.digits(rate)} a second p50 is: {figures(peers, first, p50, words.time)}.")
    picture.reading = (
        "Further left is faster, a short line is steady. A side that sleeps between calls has to be woken, which costs more than "
        "the call. " + " ".join(texts)
    )
    return picture


def bulk(results):
    peers = Peers(results)
    picture = Picture("bulk", "Small calls beside bulk", columns=("system", "beside", *PEER_COLUMNS[1:]))
    texts = []
    for place in ("2", "1", "any"):
        beside, alone = Point(workload="bulk", place=place), Point(place=place)
        points = peers.points(lambda point: point.workload == "bulk" and point.place == place)
        if not points:
            continue
        beside = points[0]
        groups, times = [], []
        for system in peers.systems:
            with_bulk, without = peers.line(system, beside), peers.line(system, alone)
            pairs = [("alone", without), ("beside bulk", with_bulk)]
            groups.append(Rows(words.system(system), [percentiles(line, name) for name, line in pairs if line]))
            picture.rows += [[row[0], name, *row[1:]] for name, line in pairs if line for row in [peer_row(line)]]
            if with_bulk and without:
                times.append(f"{words.ratio(p99(with_bulk) / p99(without))} with {words.the(system)}")
        name = words.PLACES[place]
        picture.charts.append(
            chart.ranges(f"Small calls beside bulk, {name}", "p50 and p99, alone and beside, by system", groups,
                         name.capitalize(), "us", f"latency of a call of {SMALL} B", keys=PERCENTILE_KEYS)
        )  # fmt: skip
        if times:
            texts.append(f"With {name}, bulk multiplies p99 by {words.listed(times)}.")
        picture.comparisons += peers.compare("bulk", "time", points, p50, nowhere, name)
        picture.comparisons += peers.compare("bulk", "p99", points, p99, nowhere, name)
    own_bulk(results, picture)
    picture.reading = (
        "Another process keeps 4 puts of 16 MiB in flight at the same server; the shorter the step from “alone” to “beside "
        "bulk”, the better. " + " ".join(texts)
    )
    return picture


def own_bulk(results, picture):
    """Hawser's own benchmark of the same, which measures more places."""
    names = ("p50_us", "p99_us", "alone_p50_us", "alone_p99_us", "ratio_p99")
    groups = []
    for line in results.of("beside_bulk"):
        place = PLACE_OF_PIN.get(line.get("pin"))
        if not place or not all(is_number(line.get(name)) and line[name] > 0 for name in names):
            continue
        ranges = []
        for name, start in (("alone", "alone_"), ("beside bulk", "")):
            each = {"system": "hawser", "p50_us": line[start + "p50_us"], "p99_us": line[start + "p99_us"]}
            ranges.append(percentiles(each, name))
            row = dict.fromkeys(picture.columns, "–") | {
                "system": "Hawser", "beside": name + ", beside_bulk", "cores": words.PLACES[place], "size": words.size(SMALL),
                "p50": words.time(each["p50_us"]), "p99": words.time(each["p99_us"]),
                "p99.9": optional(line, start + "p999_us", words.time), "in flight": "1", "connections": "1",
            }  # fmt: skip
            picture.rows.append([row[column] for column in picture.columns])
        groups.append(Rows(f"{words.PLACES[place]}: p99 × {words.ratio(line['ratio_p99'])}", ranges))
    if groups:
        picture.charts.append(
            chart.ranges("Hawser's small calls beside bulk, by place", "p50 and p99, alone and beside", groups,
                         "Hawser alone, by its own benchmark", "us", f"latency of a call of {SMALL} B", keys=PERCENTILE_KEYS)
        )  # fmt: skip


MODE_COLUMNS = ("mode", "cores", "calls wanted/s", "p50", "p99", "p99.9", "raw socket p50", "raw socket p99", "client, cores",
                "server, cores")  # fmt: skip
KIND_OF_MODE = {"adaptive": "hawser", "sleep": "raw", "spin": "raw"}


def mode_row(line):
    return [
        str(line["mode"]),
        words.PLACES[PLACE_OF_PIN[line["pin"]]],
        words.digits(line["rate"]),
        *(optional(line, name, words.time) for name in ("p50_us", "p99_us", "p999_us", "floor_p50_us", "floor_p99_us")),
        *(optional(line, name, words.digits) for name in ("client_cores", "server_cores")),
    ]


def mode_lines(results):
    return [
        line
        for line in results.of("paced")
        if line.get("pairs") == 1 and line.get("mode") in KIND_OF_MODE and line.get("pin") in PLACE_OF_PIN
        and is_number(line.get("p50_us")) and line["p50_us"] > 0 and is_number(line.get("rate"))
    ]  # fmt: skip


def waiting(results):
    picture = Picture("waiting", "How Hawser waits", columns=MODE_COLUMNS)
    lines = mode_lines(results)
    for rate in sorted({line["rate"] for line in lines}):
        groups = []
        for place in ("2", "1", "any"):
            here = [line for line in lines if line["rate"] == rate and PLACE_OF_PIN[line["pin"]] == place]
            if here:
                groups.append(Rows("", [waiting_range(words.PLACES[place], here)]))
        picture.charts.append(
            chart.ranges(f"Median latency by how both sides wait, {words.digits(rate)} calls a second",
                         "sleep, spin and adaptive by place", groups, f"{words.digits(rate)} calls a second", "us",
                         f"median latency of a call of {SMALL} B",
                         keys=[(KIND_OF_MODE[mode], shape, mode != "adaptive", mode) for mode, shape in SHAPES_OF_MODES.items()])
        )  # fmt: skip
    picture.rows = [mode_row(line) for line in lines]
    ratios = [each[2] / each[3] for each in bounds.adaptive_ratios(results)]
    seen = ""
    if ratios:
        within = sum(each <= bounds.ADAPTIVE_RATIO_MAX for each in ratios)
        seen = (
            f" It is within at {within} of {len(ratios)} places and loads: between {words.ratio(min(ratios))} and "
            f"{words.ratio(max(ratios))} times the better."
        )
    picture.reading = (
        "Further left is faster. The shaded band ends at 1.2 times the better of sleep and spin; the adaptive mode, which a program "
        "gets that sets nothing, is to be within it or left of it." + seen
    )
    return picture


def waiting_range(name, lines):
    marks = [
        (line["p50_us"], SHAPES_OF_MODES[line["mode"]], line["mode"] != "adaptive", KIND_OF_MODE[line["mode"]])
        for line in sorted(lines, key=lambda line: line["mode"] == "adaptive")
    ]
    others = [line["p50_us"] for line in lines if line["mode"] != "adaptive"]
    ours = [line["p50_us"] for line in lines if line["mode"] == "adaptive"]
    band = (min(others), min(others) * bounds.ADAPTIVE_RATIO_MAX) if others else ()
    text = f"{words.ratio(ours[0] / min(others))} × the better" if ours and others else ""
    short = {"a core each": "a core each", "one core shared": "one core", "cores as the kernel decides": "any core"}
    return Range("plain", short.get(name, name), marks, text, band)


def threads(results):
    picture = Picture("threads", "Threads that share one channel",
                      columns=("mode", "cores", "threads", "calls/s", "one thread, as many in flight", "ratio",
                               "client CPU s/million", "server CPU s/million"))  # fmt: skip
    names = ("threads", "calls_per_s", "floor_per_s", "ratio")
    lines = [line for line in results.of("threads")
             if line.get("pin") in PLACE_OF_PIN and all(is_number(line.get(name)) and line[name] > 0 for name in names)]  # fmt: skip
    texts = []
    for place in ("any", "1", "2"):
        here = sorted((line for line in lines if PLACE_OF_PIN[line["pin"]] == place), key=lambda line: line["threads"])
        if not here:
            continue
        name = words.PLACES[place]
        series = [
            Curve("hawser", "threads", [(line["threads"], line["calls_per_s"]) for line in here]),
            Curve("raw", "one thread", [(line["threads"], line["floor_per_s"]) for line in here]),
        ]
        picture.charts.append(
            chart.curves(f"Calls a second of threads that share a channel, {name}", "threads that wait, beside one that does not",
                         series, name.capitalize(), "threads, or calls of one thread in flight", "",
                         f"calls of {SMALL} B a second", "per_s", x_base=10)
        )  # fmt: skip
        last = here[-1]
        picture.comparisons += [
            Comparison("threads", "rate", name, words.plural(int(line["threads"]), "thread"), "one_thread", line["calls_per_s"],
                       line["floor_per_s"])
            for line in here
        ]  # fmt: skip
        texts.append(
            f"With {name}, {last['threads']:,.0f} threads make {words.rate(last['calls_per_s'])} calls a second, "
            f"{words.ratio(last['ratio'])} times what one thread makes with as many in flight."
        )
        picture.rows += [
            [str(line.get("mode")), name, f"{line['threads']:,.0f}", words.rate(line["calls_per_s"]),
             words.rate(line["floor_per_s"]), words.ratio(line["ratio"]),
             *(optional(line, f"{side}_cpu_s_per_million_calls", words.digits) for side in ("client", "server"))]
            for line in here
        ]  # fmt: skip
    picture.reading = "Higher is better. Each thread waits for its answer before it calls again. " + " ".join(texts)
    return picture


def processes(results):
    picture = Picture("processes", "Ten processes on this machine",
                      columns=("mode", "cores", "pairs", "p50", "p99", "p99.9", "cores of each process"))  # fmt: skip
    names = ("p50_us", "p99_us", "p999_us", "cores_of_each", "pairs")
    lines = [line for line in results.of("paced")
             if line.get("pin") in PLACE_OF_PIN and all(is_number(line.get(name)) and line[name] >= 0 for name in names)
             and line["pairs"] > 1 and line["p50_us"] > 0]  # fmt: skip
    if not lines:
        return picture
    line = lines[0]
    marks = [(line[name], shape, hollow) for name, shape, hollow in (
        ("p50_us", "circle", False), ("p99_us", "circle", True), ("p999_us", "diamond", True))]  # fmt: skip
    alone = next((each for each in mode_lines(results)
                  if each["mode"] == "adaptive" and each["pin"] == line["pin"] and each["rate"] == line.get("rate")), None)  # fmt: skip
    ranges = [Range("hawser", f"{2 * line['pairs']:.0f} processes", marks, f"p99 {words.time(line['p99_us'])}")]
    if alone and all(is_number(alone.get(name)) for name in names[:3]):
        marks = [(alone[name], *mark[1:]) for name, mark in zip(names, marks)]
        ranges.append(Range("raw", "two processes", marks, f"p99 {words.time(alone['p99_us'])}"))
    picture.charts.append(
        chart.ranges("Latency with ten processes", "p50, p99 and p99.9", [Rows("", ranges)],
                     f"{line['pairs']:.0f} clients call {words.digits(line['rate'])} times a second each", "us",
                     f"latency of a call of {SMALL} B, adaptive",
                     bound=(bounds.TEN_PROCESSES_P99_US_MAX, "bound of p99"),
                     keys=(*PERCENTILE_KEYS, ("raw", "diamond", True, "p99.9")))
    )  # fmt: skip
    picture.rows = [
        [str(each.get("mode")), words.PLACES[PLACE_OF_PIN[each["pin"]]], f"{each['pairs']:.0f}",
         *(words.time(each[name]) for name in names[:3]), words.digits(each["cores_of_each"], 2)]
        for each in [*lines, *([alone] if alone and len(ranges) > 1 and is_number(alone.get("cores_of_each")) else [])]
    ]  # fmt: skip
    picture.reading = (
        f"Left of the dashed line is better. Each of {2 * line['pairs']:.0f} processes uses "
        f"{words.digits(line['cores_of_each'], 2)} of a core, and p99 is {words.time(line['p99_us'])}: pollers that spin without "
        "need would take the cores from each other."
    )
    return picture


def processor_time(results):
    peers = Peers(results)
    picture = Picture("cpu", "Processor time of a call", columns=PEER_COLUMNS)
    groups = {"one": [], "load": []}
    points = (
        ("one", Point(), "one call at a time, a core each"),
        ("one", Point(place="1"), "one call at a time, one core shared"),
        ("one", Point(workload="paced", rate=100), "100 calls a second"),
        ("one", Point(workload="paced", rate=5000), "5,000 calls a second"),
        ("load", Point(in_flight=64), "64 calls in flight"),
        ("load", Point(in_flight=256), "256 calls in flight"),
        ("load", Point(in_flight=1000, connections=1000), "1,000 connections"),
    )
    for panel, point, name in points:
        lines = [line for line in (peers.line(system, point) for system in peers.systems) if line and cpu(line) > 0]
        if not lines:
            continue
        rows = [(line["system"], words.short(line["system"]), line["client_cpu_us"], line["server_cpu_us"]) for line in lines]
        groups[panel].append((name, rows))
        picture.comparisons += peers.compare("cpu", "cpu", [point], cpu, nowhere, name)
        picture.rows += peers.rows([point])
    for panel, heading in (("load", "Many calls in flight"), ("one", "Few calls")):
        if groups[panel]:
            picture.charts.append(
                chart.bars(f"Processor time of a call, {heading.lower()}", "client and server by system", groups[panel],
                           heading, "processor time of a call: client, then server (paler)")
            )  # fmt: skip
    busy = peers.line("hawser", Point(in_flight=64))
    text = f" With 64 in flight Hawser uses {words.time(cpu(busy))} a call, both sides together." if busy and cpu(busy) else ""
    picture.reading = (
        "Shorter is better. With few calls a side that spins uses its core whether calls come or not: that is the price of its "
        "latency." + text
    )
    return picture


ALL = (latency, in_flight, connections, throughput, histograms, paced, bulk, waiting, threads, processes, processor_time)


def pictures(results):
    return [make(results) for make in ALL]
