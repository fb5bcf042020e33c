"""Pictures 6 and 7: calls at an even rate, and calls beside bulk, beside other systems."""

import chart
import words
from chart import Rows
from figures import PEER_COLUMNS, Peers, few_calls_text, figures, has_p99, nowhere, p50, p99, p99_to_compare, peer_row
from picture import PERCENTILE_KEYS, Picture, optional, percentiles
from plan import SMALL, Point
from results import PLACE_OF_PIN, is_number


def paced(results):
    peers = Peers(results)
    picture = Picture("paced", "Calls at an even rate", columns=("system", "calls wanted/s", *PEER_COLUMNS[1:]))
    texts, all_lines = [], []
    points = peers.points(lambda point: point.workload == "paced")
    for rate in sorted({point.rate for point in points}):
        groups = []
        for place in ("2", "1", "any"):
            at_rate = [point for point in points if point.rate == rate and point.place == place]
            lines = [line for point in at_rate for system in peers.systems if (line := peers.line(system, point))]
            all_lines += lines
            if lines:
                groups.append(Rows(words.PLACES[place], [percentiles(line) for line in lines]))
                picture.rows += [[row[0], words.digits(rate), *row[1:]] for row in map(peer_row, lines)]
            at = lambda point: f"{words.digits(rate)} calls a second"
            for kind, value in (("time", p50), ("p99", p99_to_compare)):
                picture.comparisons += peers.compare("paced", kind, at_rate, value, at, words.PLACES[place])
        picture.charts.append(
            chart.ranges(f"Latency at {words.digits(rate)} calls a second", "p50 and p99 by system", groups,
                         f"{words.digits(rate)} calls a second", "us", f"latency of a call of {SMALL} B",
                         keys=PERCENTILE_KEYS)
        )
        first = next((point for point in points if point.rate == rate), None)
        texts.append(f"At {words.digits(rate)} a second p50 is: {figures(peers, first, p50, words.time)}.")
    picture.reading = (
        "Further left is faster, a short line is steady. A side that sleeps between calls has to be woken, which costs more than "
        "the call. A latency counts from the start of the call, not from when it was due, so a stall shows in one call only."
        + few_calls_text(all_lines) + " " + " ".join(texts)
    )
    return picture


def bulk(results):
    peers = Peers(results)
    picture = Picture("bulk", "Small calls beside bulk", columns=("system", "beside", *PEER_COLUMNS[1:], "puts, GiB/s"))
    texts, all_lines = [], []
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
            all_lines += filter(None, (with_bulk, without))
            groups.append(Rows(words.system(system), [percentiles(line, name) for name, line in pairs if line]))
            picture.rows += [[row[0], name, *row[1:], puts(line)] for name, line in pairs if line for row in [peer_row(line)]]
            if with_bulk and without and has_p99(with_bulk) and has_p99(without):
                times.append(f"{words.ratio(p99(with_bulk) / p99(without))} with {words.the(system)}")
        name = words.PLACES[place]
        picture.charts.append(
            chart.ranges(f"Small calls beside bulk, {name}", "p50 and p99, alone and beside, by system", groups,
                         name.capitalize(), "us", f"latency of a call of {SMALL} B", keys=PERCENTILE_KEYS)
        )
        if times:
            texts.append(f"With {name}, bulk multiplies p99 by {words.listed(times)}.")
        if moved := puts_text(peers, beside):
            texts.append(f"With {name} the puts move meanwhile, in GiB/s: {moved}.")
        picture.comparisons += peers.compare("bulk", "time", points, p50, nowhere, name)
        picture.comparisons += peers.compare("bulk", "p99", points, p99_to_compare, nowhere, name)
    own_bulk(results, picture)
    picture.reading = (
        "Another process keeps 4 puts of 16 MiB in flight at the same server. The closer “beside bulk” is to “alone”, the "
        "better." + few_calls_text(all_lines) + " " + " ".join(texts)
    )
    return picture


def puts(line):
    """A system that puts slowly disturbs its echoes less."""
    return optional(line, "put_bytes_per_s", lambda each: words.digits(each / (1 << 30)))


def puts_text(peers, point):
    """ "Hawser 1.20, raw socket 2.43"; "" where it was not measured."""
    lines = [line for line in (peers.line(system, point) for system in peers.systems) if line and puts(line) != "–"]
    return ", ".join(f"{words.system(line['system'])} {puts(line)}" for line in lines)


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
            }
            picture.rows.append([row[column] for column in picture.columns])
        groups.append(Rows(f"{words.PLACES[place]}: p99 × {words.ratio(line['ratio_p99'])}", ranges))
    if groups:
        picture.charts.append(
            chart.ranges("Hawser's small calls beside bulk, by place", "p50 and p99, alone and beside", groups,
                         "Hawser alone, by its own benchmark", "us", f"latency of a call of {SMALL} B", keys=PERCENTILE_KEYS)
        )
