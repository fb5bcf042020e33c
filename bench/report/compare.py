"""Hawser beside the other systems: ratios, and the sentences that say what they are. Nothing here is written by hand about a
result, so that a figure that is behind is said as plainly as one that is ahead."""

from dataclasses import dataclass

import words

# Above this cost, relative to raw sockets, which do nothing but move the bytes, the report says so as it says that Hawser is
# behind a system that does as much as it does.
FLOOR_RATIO_MAX = 2.0

# (what Hawser does, what the other does), by kind; of those where more is better the ratio is told the other way round.
VERBS = {
    "time": ("takes", "times what", "takes"),
    "p99": ("has a 99th percentile of", "times what", "has"),
    "rate": ("makes", "times as many calls as", "makes"),
    "bytes": ("moves", "times as many bytes as", "moves"),
    "cpu": ("uses", "times the processor time that", "uses"),
}
# In what Hawser is level with another system.
NOUNS = {
    "time": "latency",
    "p99": "its 99th percentile",
    "rate": "calls a second",
    "bytes": "bytes a second",
    "cpu": "processor time",
}
MORE_IS_BETTER = ("rate", "bytes")


@dataclass(frozen=True)
class Comparison:
    """One figure of Hawser and of another system at the same point."""

    picture: str
    kind: str
    condition: str  # "a core each"
    at: str  # "4 MiB"
    system: str
    hawser: float
    other: float

    @property
    def told(self):
        """Hawser's figure divided by the other's."""
        return self.hawser / self.other

    @property
    def cost(self):
        """Above 1 Hawser is behind."""
        return self.other / self.hawser if self.kind in MORE_IS_BETTER else self.told

    @property
    def verdict(self):
        """ "behind", "level" or "ahead"; beside a floor "behind", or "floor" if it is near enough to it."""
        cost = words.rounded_ratio(self.cost)
        if self.system in words.FLOORS:
            return "behind" if cost > FLOOR_RATIO_MAX else "floor"
        return "behind" if cost > 1 else "level" if cost == 1 else "ahead"

    @property
    def behind(self):
        return self.verdict == "behind"

    @property
    def where(self):
        return ", ".join(text for text in (self.at, self.condition) if text)


def ratios(comparisons):
    """ "1.42", or "1.20 and 1.42", or of more "1.20 to 1.95"."""
    told = [each.told for each in comparisons]
    if len(told) <= 2:
        return words.listed(dict.fromkeys(words.ratio(value) for value in told))
    low, high = words.ratio(min(told)), words.ratio(max(told))
    return low if low == high else f"{low} to {high}"


def places(comparisons):
    """ "4 MiB, 16 MiB and 64 MiB", or of many how many."""
    if len(comparisons) <= 4:
        return words.shared([each.at for each in comparisons])
    return f"{len(comparisons)} points from {comparisons[0].at} to {comparisons[-1].at}"


def sentence(comparisons):
    """What comparisons say that have the same picture, kind, condition and system: "At 4 MiB Hawser takes 1.42 times what gRPC
    takes." """
    first = comparisons[0]
    start = [f"At {places(comparisons)}"] if first.at else []
    start += [f"with {first.condition}"] if first.condition else []
    where = " ".join(start)
    return f"{where[:1].upper()}{where[1:]} Hawser {VERBS[first.kind][0]} {relation(comparisons)}."


@dataclass(frozen=True)
class Sentence:
    """`verdict` is that of the comparisons it is about."""

    verdict: str
    text: str
    picture: str
    beside_floor: bool = False


def parts(comparisons, *names):
    """Lists of those that have the same values of these fields, in their order."""
    found = {}
    for each in comparisons:
        found.setdefault(tuple(getattr(each, name) for name in names), []).append(each)
    return list(found.values())


def sentences(comparisons):
    """Each system and condition that Hawser is behind at gets a sentence of its own; they come first. The systems that it is
    ahead of, or level with, share one for each picture and kind."""
    behind, rest = [], []
    for group in parts(comparisons, "picture", "kind", "condition", "system"):
        if late := [each for each in group if each.behind]:
            behind.append(Sentence("behind", sentence(late), late[0].picture, late[0].system in words.FLOORS))
    for same in parts(comparisons, "picture", "kind"):
        for verdict in ("ahead", "level", "floor"):
            rest += shared_sentence(parts(same, "system"), verdict)
    behind.sort(key=lambda each: each.beside_floor)
    return behind + sorted(rest, key=lambda each: ("ahead", "level", "floor").index(each.verdict))


def shared_sentence(groups, verdict):
    """One sentence about those of each group that have this verdict: "Hawser takes 0.62 times what gRPC takes and 0.80 times
    what Thrift takes (at 3 of 4 points).", "In latency Hawser is level with gRPC (at 1 of 4 points) and Thrift." """
    texts = []
    for group in groups:
        if kept := [each for each in group if each.verdict == verdict]:
            part = f" (at {len(kept)} of {len(group)} points)" if len(kept) < len(group) else ""
            texts.append((words.the(kept[0].system) if verdict == "level" else relation(kept)) + part)
    if not texts:
        return []
    first = groups[0][0]
    if verdict == "level":
        text = f"In {NOUNS[first.kind]} Hawser is level with {words.listed(texts)}."
    else:
        text = f"Hawser {VERBS[first.kind][0]} {words.listed(texts)}."
    return [Sentence(verdict, text, first.picture)]


def relation(comparisons):
    """ "0.62 times what gRPC takes"."""
    first = comparisons[0]
    _, times, other_does = VERBS[first.kind]
    return f"{ratios(comparisons)} {times} {words.the(first.system)} {other_does}"


@dataclass(frozen=True)
class Standing:
    """Hawser against one system over all points."""

    system: str
    best: Comparison
    worst: Comparison
    middle: float
    behind: int
    level: int
    points: int


def standings(comparisons):
    found = []
    for group in parts(comparisons, "system"):
        system = group[0].system
        if system not in words.SYSTEMS:
            continue
        ordered = sorted(group, key=lambda each: each.cost)
        behind, level = (sum(each.verdict == verdict for each in group) for verdict in ("behind", "level"))
        found.append(Standing(system, ordered[0], ordered[-1], ordered[len(group) // 2].cost, behind, level, len(group)))
    return found
