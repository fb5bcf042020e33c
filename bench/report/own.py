"""Pictures 8 to 10: Hawser's own benchmarks, of what no other system is measured by."""

import bounds
import chart
import words
from chart import SHAPES_OF_MODES, Curve, Range, Rows
from compare import Comparison
from picture import PERCENTILE_KEYS, Picture, optional
from plan import SMALL
from results import PLACE_OF_PIN, is_number

MODE_COLUMNS = ("mode", "cores", "calls wanted/s", "p50", "p99", "p99.9", "raw socket p50", "raw socket p99", "client, cores",
                "server, cores")
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
    ]


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
        )
    picture.rows = [mode_row(line) for line in lines]
    ratios = [each[2] / each[3] for each in bounds.adaptive_ratios(results)]
    seen = ""
    if ratios:
        within = sum(map(bounds.adaptive_is_held, ratios))
        low, high = words.ratio(min(ratios)), words.ratio(max(ratios))
        seen = f" It is within at {within} of {words.plural(len(ratios), 'point')}: "
        seen += f"{low} times the better." if low == high else f"between {low} and {high} times the better."
    picture.reading = (
        "Further left is faster. The shaded band ends at 1.2 times the better of sleep and spin; the adaptive mode, the default, "
        "is to be within it or left of it." + seen
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
                      columns=("mode", "cores", "threads", "calls/s", "one thread, as many in flight", "ratio", "hand-offs/s",
                               "time / both floors", "client CPU s/million", "server CPU s/million"))
    names = ("threads", "calls_per_s", "floor_per_s", "ratio")
    lines = [line for line in results.of("threads")
             if line.get("pin") in PLACE_OF_PIN and all(is_number(line.get(name)) and line[name] > 0 for name in names)]
    texts = []
    for place in ("any", "1", "2"):
        here = sorted((line for line in lines if PLACE_OF_PIN[line["pin"]] == place), key=lambda line: line["threads"])
        if not here:
            continue
        name = words.PLACES[place]
        series = [
            Curve("hawser", "threads", [(line["threads"], line["calls_per_s"]) for line in here]),
            Curve("raw", "one thread", [(line["threads"], line["floor_per_s"]) for line in here]),
            Curve("raw", "hand-offs", [(line["threads"], line["hand_off_per_s"]) for line in here
                                       if is_number(line.get("hand_off_per_s")) and line["hand_off_per_s"] > 0]),
        ]
        picture.charts.append(
            chart.curves(f"Calls a second of threads that share a channel, {name}", "threads that wait, beside one that does not",
                         series, name.capitalize(), "threads, or calls of one thread in flight", "",
                         f"calls of {SMALL} B a second", "per_s", x_base=10)
        )
        last = here[-1]
        picture.comparisons += [
            Comparison("threads", "rate", name, words.plural(int(line["threads"]), "thread"), "one_thread", line["calls_per_s"],
                       line["floor_per_s"])
            for line in here
        ]
        texts.append(
            f"With {name}, {last['threads']:,.0f} threads make {words.rate(last['calls_per_s'])} calls a second, "
            f"{words.ratio(last['ratio'])} times what one thread makes with as many in flight."
        )
        picture.rows += [
            [str(line.get("mode")), name, f"{line['threads']:,.0f}", words.rate(line["calls_per_s"]),
             words.rate(line["floor_per_s"]), words.ratio(line["ratio"]),
             optional(line, "hand_off_per_s", words.rate), optional(line, "of_floors", words.ratio),
             *(optional(line, f"{side}_cpu_s_per_million_calls", words.digits) for side in ("client", "server"))]
            for line in here
        ]
    picture.reading = (
        "Higher is better. Each thread waits for its answer before it calls again, so another thread has to wake it; the hand-offs "
        "are threads that do nothing else. " + " ".join(texts)
    )
    return picture


def processes(results):
    picture = Picture("processes", "Ten processes on this machine",
                      columns=("mode", "cores", "pairs", "p50", "p99", "p99.9", "cores of each process"))
    names = ("p50_us", "p99_us", "p999_us", "cores_of_each", "pairs")
    lines = [line for line in results.of("paced")
             if line.get("pin") in PLACE_OF_PIN and all(is_number(line.get(name)) and line[name] >= 0 for name in names)
             and line["pairs"] > 1 and line["p50_us"] > 0]
    if not lines:
        return picture
    line = lines[0]
    marks = [(line[name], shape, hollow) for name, shape, hollow in (
        ("p50_us", "circle", False), ("p99_us", "circle", True), ("p999_us", "diamond", True))]
    alone = next((each for each in mode_lines(results)
                  if each["mode"] == "adaptive" and each["pin"] == line["pin"] and each["rate"] == line.get("rate")), None)
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
    )
    picture.rows = [
        [str(each.get("mode")), words.PLACES[PLACE_OF_PIN[each["pin"]]], f"{each['pairs']:.0f}",
         *(words.time(each[name]) for name in names[:3]), words.digits(each["cores_of_each"], 2)]
        for each in [*lines, *([alone] if alone and len(ranges) > 1 and is_number(alone.get("cores_of_each")) else [])]
    ]
    picture.reading = (
        f"Left of the dashed line is better. Each of {2 * line['pairs']:.0f} processes uses "
        f"{words.digits(line['cores_of_each'], 2)} of a core, and p99 is {words.time(line['p99_us'])}: pollers that spin without "
        "need would take the cores from each other."
    )
    return picture
