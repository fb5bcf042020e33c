"""Which points are measured, how long, and with which flags the programs run."""

from dataclasses import dataclass, replace

KIB, MIB = 1 << 10, 1 << 20
SMALL = 32  # Bytes of a small call.


@dataclass(frozen=True)
class Point:
    """One measurement of one system (bench/peers)."""

    workload: str = "echo"
    place: str = "2"
    bytes: int = SMALL
    in_flight: int = 1
    connections: int = 1
    rate: int = 0

    def more_seconds(self):
        """About what it takes beyond the time that it is measured and what every point takes: to connect, and at least three
        calls and those that warm up, however large."""
        return self.connections / 1500 + self.bytes * self.in_flight * 6 / (1 << 30)

    def text(self):
        return f"{self.workload}:{self.place}:{self.bytes}:{self.in_flight}:{self.connections}:{self.rate}"


@dataclass(frozen=True)
class Group:
    """Points that one run of a program measures. Each system in turn, so that what they are compared by is some seconds old."""

    name: str
    points: tuple
    seconds_min: float = 0  # Each of these points takes at least that long: at 100 calls a second few come in less.


@dataclass(frozen=True)
class Own:
    """A run of one of Hawser's own benchmarks."""

    program: str
    name: str
    flags: tuple
    seconds: float  # About what it takes.


@dataclass(frozen=True)
class Plan:
    mode: str
    groups: tuple
    own: tuple
    rounds: int
    peer_seconds: float  # For all systems and rounds together.
    limit_seconds: float  # Then what is left is not measured.
    point_seconds_min: float
    start_seconds: float  # What a point takes beside: processes start, and warm up.
    step_limit_seconds_min: float = 20  # A run of a program may take at least that long.

    def point_seconds(self, systems):
        """How long a point is measured, so that all of them take about `peer_seconds`."""
        left = self.peer_seconds / (systems * self.rounds)
        count = 0
        for group in self.groups:
            each = group.seconds_min + self.start_seconds
            left -= sum(each + point.more_seconds() for point in group.points)
            count += 0 if group.seconds_min else len(group.points)
        return max(self.point_seconds_min, round(left / max(1, count), 2))

    def seconds_of(self, group, systems):
        """How long each point of a group is measured."""
        return max(group.seconds_min, self.point_seconds(systems))

    def group_seconds(self, group, systems):
        """About what one run of one system takes."""
        each = self.seconds_of(group, systems) + self.start_seconds
        return sum(each + point.more_seconds() for point in group.points)


def sizes(place, all_bytes):
    return tuple(Point(place=place, bytes=each) for each in all_bytes)


def in_flight(place, counts):
    return tuple(Point(place=place, in_flight=each) for each in counts)


def connections(counts):
    """64 in flight over all of them, or one on each."""
    return tuple(Point(connections=each, in_flight=max(64, each)) for each in counts)


def throughput(all_bytes):
    return tuple(Point(bytes=each, in_flight=4) for each in all_bytes)


def paced(places, rates):
    return tuple(Point(workload="paced", place=place, rate=rate) for place in places for rate in rates)


def beside_bulk(places):
    """Alone, and beside."""
    return tuple(Point(workload=kind, place=place) for place in places for kind in ("echo", "bulk"))


def waiting(seconds, rounds):
    """Sides that spin on one core take it from each other, so that each of their calls takes some milliseconds: they make
    few."""
    def run(name, rate, modes, seconds, expected):
        flags = (f"--modes={','.join(modes)}", f"--rates={rate}", f"--seconds={seconds:g}", f"--rounds={rounds}")
        return Own("paced", f"how it waits, {name}", flags, expected * rounds)

    modes = [f"{mode}:{place}" for place in ("1", "2", "any") for mode in ("sleep", "spin", "adaptive")]
    few = [mode for mode in modes if mode != "spin:1"]
    return (
        run("100 calls a second", 100, modes, seconds, 9 * (2.1 * seconds + 0.15)),
        run("5,000 calls a second", 5000, few, seconds, 8 * (2.1 * seconds + 0.15)),
        run("5,000 calls a second on one core that is spun on", 5000, ["spin:1"], seconds / 10, 100 * seconds * 0.1),
    )


def others(bulk_flags, threads_flags, pairs_flags, connections_flags, seconds):
    bulk_seconds, threads_seconds, pairs_seconds, connections_seconds = seconds
    return (
        Own("beside_bulk", "small calls beside bulk",
            ("--modes=adaptive:1,adaptive:2,adaptive:any", "--from=process", *bulk_flags), bulk_seconds),
        Own("paced", "ten processes", ("--modes=adaptive:any", "--pairs=5", "--rates=100", *pairs_flags), pairs_seconds),
        Own("threads", "threads", ("--modes=adaptive:any,adaptive:1", *threads_flags), threads_seconds),
        Own("connections", "idle connections", connections_flags, connections_seconds),
    )


def full():
    all_sizes = (1, SMALL, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
    return Plan(
        mode="full",
        groups=(
            Group("latency by size, a core each", sizes("2", all_sizes)),
            Group("latency by size, one core", sizes("1", all_sizes)),
            Group("calls in flight, a core each", in_flight("2", (2, 4, 8, 16, 32, 64, 128, 256))),
            Group("calls in flight, one core", in_flight("1", (4, 16, 64, 256))),
            Group("connections", connections((4, 16, 64, 256, 1000))),
            Group("throughput", throughput([each for each in all_sizes if each >= KIB])),
            Group("paced", paced(("2", "1", "any"), (100, 5000)), seconds_min=1),
            Group("beside bulk", beside_bulk(("2", "1", "any"))),
        ),
        own=waiting(seconds=1, rounds=3) + others(
            ("--rounds=3", "--seconds=1"),
            ("--threads=1,4,16,64,256,1000", "--rounds=3", "--calls=50000"),
            ("--rounds=3", "--seconds=3"),
            ("--connections=10000",),
            (25, 60, 14, 30),
        ),
        rounds=3,
        peer_seconds=580,
        limit_seconds=880,
        point_seconds_min=0.2,
        start_seconds=0.15,
    )


def quick():
    all_sizes = (1, SMALL, KIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB)
    return Plan(
        mode="quick",
        groups=(
            # What is cut off when the machine is slow comes last.
            Group("latency by size, a core each", sizes("2", all_sizes)),
            Group("calls in flight", in_flight("2", (4, 16, 64, 256))),
            Group("paced", paced(("2",), (100, 5000)), seconds_min=0.5),
            Group("beside bulk", beside_bulk(("2", "any"))),
            Group("latency by size, one core", sizes("1", all_sizes[:-1])),
            Group("throughput", throughput((16 * KIB, 256 * KIB, 4 * MIB))),
            Group("connections", connections((30, 1000))),
        ),
        own=waiting(seconds=0.25, rounds=1) + others(
            ("--rounds=1", "--seconds=0.4"),
            ("--threads=1,16,256,1000", "--rounds=1", "--calls=10000"),
            ("--rounds=1", "--seconds=1"),
            ("--connections=1000", "--idle_seconds=0.3", "--keepalive=500ms"),
            (4, 5, 2, 4),
        ),
        rounds=1,
        peer_seconds=66,
        limit_seconds=106,
        point_seconds_min=0.05,
        start_seconds=0.1,
    )


def tiny():
    """For the test: each kind of point and each program once."""
    return Plan(
        mode="tiny",
        groups=(
            Group("latency by size", sizes("2", (SMALL, 64 * KIB)) + sizes("1", (SMALL, 64 * KIB))),
            Group("calls in flight and connections", in_flight("2", (64,)) + connections((2,))),
            Group("throughput", throughput((64 * KIB,))),
            Group("paced and beside bulk", paced(("2",), (100, 5000)) + beside_bulk(("2",))),
        ),
        own=waiting(seconds=0.02, rounds=1) + others(
            ("--put_bytes=1048576", "--rounds=1", "--seconds=0.02"),
            ("--threads=1,8", "--rounds=1", "--calls=500"),
            ("--rounds=1", "--seconds=0.02"),
            ("--connections=100", "--idle_seconds=0.05", "--keepalive=500ms"),
            (1, 1, 1, 3),
        ),
        rounds=1,
        peer_seconds=3,
        limit_seconds=240,
        point_seconds_min=0.02,
        start_seconds=0.1,
        # The test runs beside others, which may take the cores for a long time.
        step_limit_seconds_min=120,
    )


# The cores that a place needs: bench/process.cc and bench/peers pin programs to these.
CORES_OF_PLACES = {"1": {0}, "2": {0, 1}}


def unusable_places(cores):
    """Programs that may not use the cores of a place are not pinned, so their figures would be of another place."""
    return tuple(place for place, needed in CORES_OF_PLACES.items() if not needed <= set(cores))


def without(plan, places):
    """What is left of a plan where these places cannot be used."""
    groups = [replace(group, points=tuple(point for point in group.points if point.place not in places))
              for group in plan.groups]
    own = [own_without(each, places) for each in plan.own]
    return replace(plan, groups=tuple(group for group in groups if group.points), own=tuple(filter(None, own)))


def own_without(own, places):
    """None if nothing is left of it."""
    start = "--modes="
    modes = [mode for flag in own.flags if flag.startswith(start) for mode in flag[len(start):].split(",")]
    kept = [mode for mode in modes if mode.partition(":")[2] not in places]
    if not modes or len(kept) == len(modes):
        return own
    if not kept:
        return None
    flags = tuple(start + ",".join(kept) if flag.startswith(start) else flag for flag in own.flags)
    return replace(own, flags=flags, seconds=own.seconds * len(kept) / len(modes))


PLANS = {"full": full, "quick": quick, "tiny": tiny}
