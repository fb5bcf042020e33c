"""A picture: its charts, the sentence that says how to read it, what is compared, and the table of all figures."""

from dataclasses import dataclass, field

import words
from chart import SHAPES, Range
from results import is_number


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


def optional(line, name, write):
    return write(line[name]) if is_number(line.get(name)) else "–"


PERCENTILE_KEYS = (("raw", "circle", False, "p50"), ("raw", "circle", True, "p99"))


def percentiles(line, name=None):
    shape = SHAPES.get(line["system"], "circle")
    p50_us, p99_us = line["p50_us"], line["p99_us"]
    return Range(line["system"], name or words.short(line["system"]), [(p50_us, shape, False), (p99_us, shape, True)],
                 f"{words.time(p50_us)} – {words.time(p99_us)}")
