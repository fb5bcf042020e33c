"""The four kinds of charts: curves, ranges, ridges and bars. Each returns an Svg.

Names are written beside what they name, so that no legend has to be looked up.
"""

import math
from dataclasses import dataclass, field

from scale import Linear, Log, spread
from svg import WIDTH, Svg
import words

SHAPES = {"hawser": "circle", "raw": "diamond", "capnp_rpc": "square", "grpc": "up", "thrift": "down"}
SHAPES_OF_MODES = {"adaptive": "circle", "sleep": "square", "spin": "up"}


@dataclass
class Curve:
    """Points (x, y) of one line; `kind` is a series of look.py."""

    kind: str
    name: str
    points: list


@dataclass
class Range:
    """Marks in one row: (value, shape, hollow), and what is written behind them."""

    kind: str
    name: str
    marks: list
    text: str = ""
    band: tuple = ()


@dataclass
class Rows:
    """Ranges under one heading."""

    heading: str
    ranges: list = field(default_factory=list)


def x_axis(svg, axis, bottom, unit, label, top, most=7):
    for value in axis.ticks(most):
        svg.line(axis(value), top, axis(value), bottom, "grid")
        svg.text(axis(value), bottom + 16, words.tick(value, unit), "tick", "middle")
    svg.line(axis.begin, bottom, axis.end, bottom, "axis")
    if label:
        svg.text((axis.begin + axis.end) / 2, bottom + 33, label, "name", "middle")


def y_axis(svg, axis, left, right, unit, most=8):
    for value in axis.ticks(most):
        svg.line(left, axis(value), right, axis(value), "grid")
        svg.text(left - 7, axis(value) + 4, words.tick(value, unit), "tick", "end")


def curves(title, description, series, heading, x_label, x_unit, y_label, y_unit, height=330, x_base=2, y_base=10,
           linear=False):
    """Lines over a logarithmic x axis, named at their right ends."""
    svg = Svg(height, title, description, heading)
    series = [each for each in series if each.points]
    left, right, top, bottom = 54, WIDTH - 112, 46, height - 42
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points]
    svg.text(0, 32, y_label, "name")
    if not xs:
        svg.text(WIDTH / 2, height / 2, "no figures", "name", "middle")
        return svg
    x = Log(min(xs), max(xs), left + 6, right, base=x_base, widen=False)
    y = Linear(max(ys), bottom, top) if linear else Log(min(ys), max(ys), bottom, top, base=y_base)
    y_axis(svg, y, left, right, y_unit, most=6 if linear else 8)
    x_axis(svg, x, bottom, x_unit, x_label, top)
    ends = spread([y(each.points[-1][1]) for each in series], 15, top, bottom + 4)
    for each, end in sorted(zip(series, ends), key=lambda pair: pair[0].kind == "hawser"):
        svg.begin(each.kind)
        places = [(x(a), y(b)) for a, b in each.points]
        svg.path(places, "curve")
        for place in places if each.kind != "raw" else ():
            svg.mark(*place, SHAPES.get(each.kind, "circle"), size=4 if each.kind == "hawser" else 3.2)
        if places[-1][0] < right - 30:  # It ends early: a leader to the right would look like its curve.
            svg.text(places[-1][0] + 8, places[-1][1] + 4, each.name, "label")
        else:
            svg.path([(places[-1][0] + 5, places[-1][1]), (right + 12, end)], "leader")
            svg.text(right + 15, end + 4, each.name, "label")
        svg.end()
    return svg


def ranges(title, description, groups, heading, unit, label, bound=None, keys=()):
    """Rows of marks over a logarithmic axis. `keys`: (shape, hollow, name) of the marks, drawn below the heading; `bound`:
    (value, text) of a dashed line."""
    name_width, text_width, row = 104, 122, 22
    count = sum(len(group.ranges) + bool(group.heading) for group in groups)
    top = 44 if keys else 26
    bottom = top + row * count + 6
    svg = Svg(bottom + 40, title, description, heading)
    draw_keys(svg, keys)
    values = [mark[0] for group in groups for each in group.ranges for mark in each.marks]
    values += [edge for group in groups for each in group.ranges for edge in each.band] + ([bound[0]] if bound else [])
    if not values:
        svg.text(WIDTH / 2, svg.height / 2, "no figures", "name", "middle")
        return svg
    axis = Log(min(values), max(values), name_width, WIDTH - text_width)
    x_axis(svg, axis, bottom, unit, label, top, most=5)
    if bound:
        svg.line(axis(bound[0]), top - 2, axis(bound[0]), bottom, "bound")
        svg.text(axis(bound[0]), top - 7, bound[1], "bound-text", "middle")
    y = top
    for group in groups:
        if group.heading:
            y += row
            svg.text(0, y - 5, group.heading, "name")
        for each in group.ranges:
            y += row
            draw_range(svg, each, axis, y - row / 2, WIDTH - text_width + 10)
    return svg


def draw_keys(svg, keys):
    """What the marks mean, in one line."""
    x = 6
    for kind, shape, hollow, name in keys:
        svg.begin(kind)
        svg.mark(x, 30, shape, "hollow" if hollow else "dot", 3.8)
        svg.end()
        svg.text(x + 9, 34, name, "name")
        x += 24 + 6.2 * len(name)


def draw_range(svg, each, axis, y, text_x):
    if each.band:
        svg.rect(axis(each.band[0]), y - 10, axis(each.band[1]) - axis(each.band[0]), 20, "band")
    svg.begin(each.kind)
    svg.text(12, y + 4, each.name, "label")
    places = [axis(value) for value, *_ in each.marks]
    if len(places) > 1:
        svg.line(min(places), y, max(places), y, "span")
    for (_, shape, hollow, *kind), place in zip(each.marks, places):
        if kind:
            svg.begin(kind[0])
        svg.mark(place, y, shape, "hollow" if hollow else "dot", 4.4 if each.kind == "hawser" else 3.8)
        if kind:
            svg.end()
    svg.end()
    svg.text(text_x, y + 4, each.text, "tick")


def ridges(title, description, series, heading, unit, label):
    """Histograms below each other over one logarithmic axis. Each of `series`: (kind, name, bins, marks), where bins are (low,
    high, share) and marks are (value, text)."""
    row, left, top = 60, 92, 30
    bottom = top + row * len(series)
    svg = Svg(bottom + 42, title, description, heading)
    edges = [edge for _, _, bins, _ in series for low, high, _ in bins for edge in (low, high)]
    if not edges:
        svg.text(WIDTH / 2, 40, "no figures", "name", "middle")
        return svg
    axis = Log(min(edges), max(edges), left, WIDTH - 22)
    x_axis(svg, axis, bottom, unit, label, top)
    tallest = max(share for _, _, bins, _ in series for *_, share in bins)
    for i, (kind, name, bins, marks) in enumerate(series):
        base = top + row * (i + 1) - 1
        svg.line(left, base, WIDTH - 22, base, "axis")
        svg.begin(kind)
        svg.text(0, base - 37, name, "label")
        steps = outline(bins, axis, base, (row - 16) / tallest)
        svg.path(steps, "area", closed=True)
        svg.path(steps[1:-1], "curve")
        for value, _ in marks:
            svg.line(axis(value), base, axis(value), base - row * 0.42, "span")
        svg.end()
        for line, (_, text) in enumerate(marks):
            svg.text(0, base - 21 + 14 * line, text, "tick")
    return svg


def outline(bins, axis, base, height):
    """The steps of a histogram, from its left foot to its right one."""
    points = [(axis(bins[0][0]), base)]
    for low, high, share in bins:
        y = base - share * height
        points += [(axis(low), y), (axis(high), y)]
    return points + [(axis(bins[-1][1]), base)]


# Of the calls: what is rarer at an end of a histogram is not drawn.
SHARE_MIN = 1 / 5000


def bins_of(histogram, each_decade=10, least=SHARE_MIN):
    """Counts [[upper, count], ...] as shares of equal width on a logarithmic axis; rare values at both ends are left out. The
    programs count ten buckets a decade, and print their upper ends with four digits."""
    total = sum(count for _, count in histogram)
    shares = {}
    for upper, count in histogram:
        if upper > 0 and count > 0:
            bin = math.ceil(math.log10(upper) * each_decade - 0.02) - 1
            shares[bin] = shares.get(bin, 0) + count / total
    if not shares:
        return []
    kept = [bin for bin in shares if shares[bin] >= least] or list(shares)
    edge = lambda bin: 10 ** (bin / each_decade)
    return [(edge(bin), edge(bin + 1), shares.get(bin, 0)) for bin in range(min(kept), max(kept) + 1)]


def bars(title, description, groups, heading, label):
    """Two parts on top of each other in each row. `groups`: (heading, [(kind, name, first, second)])."""
    name_width, text_width, row = 104, 62, 22
    count = sum(len(rows) + bool(name) for name, rows in groups)
    top = 26
    bottom = top + row * count + 6
    svg = Svg(bottom + 40, title, description, heading)
    sums = [first + second for _, rows in groups for _, _, first, second in rows]
    if not sums or max(sums) <= 0:
        svg.text(WIDTH / 2, svg.height / 2, "no figures", "name", "middle")
        return svg
    axis = Linear(max(sums), name_width, WIDTH - text_width)
    x_axis(svg, axis, bottom, "us", label, top, most=5)
    y = top
    for name, rows in groups:
        if name:
            y += row
            svg.text(0, y - 5, name, "name")
        for kind, who, first, second in rows:
            y += row
            svg.begin(kind)
            svg.text(12, y - 7, who, "label")
            svg.rect(axis(0), y - 18, axis(first) - axis(0), 14, "dot")
            svg.rect(axis(first), y - 18, axis(first + second) - axis(first), 14, "dot second")
            svg.end()
            svg.text(axis(first + second) + 6, y - 7, words.time(first + second), "tick")
    return svg
