"""Pictures 1 to 5 and 11: calls that follow each other without a pause, beside other systems."""

import chart
import words
from chart import Curve
from figures import (PEER_COLUMNS, Peers, cpu, few_calls_text, figures, first_text, has_p99, leads, nowhere, of_size, p50, p99,
                     p99_to_compare, per_s)
from picture import Picture
from plan import SMALL, Point
from results import is_number


def one_at_a_time(place):
    return lambda point: point == Point(place=place, bytes=point.bytes)


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
        )
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
                        "times", height=250, y_base=2)


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
        )
        at = lambda point: f"{point.in_flight} in flight"
        picture.comparisons += peers.compare("in_flight", "rate", points, per_s, at, name)
        picture.rows += peers.rows(points)
        first, count = leads(peers, points, per_s, max)
        texts.append(f"With {name} and {most.in_flight} in flight: {figures(peers, most, per_s, words.rate)} calls a second."
                     + first_text(first, count, "point"))
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
        )
        at = lambda point: words.plural(point.connections, "connection")
        picture.comparisons = peers.compare("connections", "rate", points, per_s, at)
        picture.rows = peers.rows(points)
        first, count = leads(peers, points, per_s, max)
        picture.reading = (
            "Higher is better: 64 calls are in flight in all, or one on each connection when there are more. The server of the raw "
            "socket has a thread for each connection, so it is no floor where there are many. With "
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
        )
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
    texts, all_lines = [], []
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
        )
        picture.rows += peers.rows([point])
        all_lines += lines
        spread = [(line["system"], p99(line) / p50(line)) for line in lines if has_p99(line)]
        if spread:
            texts.append(f"{name.capitalize()}, p99 is " + ", ".join(
                f"{words.ratio(times)}{'' if i else ' times p50'} with {words.the(system)}"
                for i, (system, times) in enumerate(spread)) + ".")
        picture.comparisons += peers.compare("histograms", "p99", [point], p99_to_compare, nowhere, name)
    picture.reading = (
        "Further left is faster, narrower is steadier. The two strokes in each row are p50 and p99. The strokes are medians "
        f"over the rounds; values rarer than 1 in {round(1 / chart.SHARE_MIN):,} at the ends are not drawn."
        + few_calls_text(all_lines) + " " + " ".join(texts)
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
            )
    busy = peers.line("hawser", Point(in_flight=64))
    text = f" With 64 in flight Hawser uses {words.time(cpu(busy))} a call, both sides together." if busy and cpu(busy) else ""
    picture.reading = (
        "Shorter is better. With few calls a side that spins uses its core whether calls come or not: that is the price of its "
        "latency." + text
    )
    return picture
