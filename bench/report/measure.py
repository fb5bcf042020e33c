"""Carries a plan out: Hawser's own benchmarks, then rounds, in each of which the systems take turns."""

import time
from dataclasses import dataclass

import words
from plan import Point
from results import fault
from run import run

# What a point may take beyond the time that it is measured.
POINT_SECONDS_MORE = 6
OWN_SECONDS_FACTOR = 4
# What the last program may take beyond the end of the measurement.
LATE_SECONDS_MAX = 8


@dataclass(frozen=True)
class Step:
    """One run of one program."""

    name: str
    system: str  # "" for Hawser's own benchmarks.
    command: list
    expected_seconds: float
    limit_seconds: float
    round: int
    points: tuple = ()
    own: bool = False


def peer_steps(plan, programs, round):
    """Groups in order; the systems of each in turn, and each round begins with another one."""
    systems = list(programs)
    systems = systems[round % len(systems):] + systems[: round % len(systems)] if systems else []
    return [
        Step(
            name=f"{system}: {group.name}",
            system=system,
            command=[programs[system], "--points=" + ",".join(map(Point.text, group.points)),
                     f"--seconds={plan.seconds_of(group, len(programs)):g}"],
            expected_seconds=plan.group_seconds(group, len(programs)),
            limit_seconds=max(2 * plan.group_seconds(group, len(programs)) + len(group.points) * POINT_SECONDS_MORE,
                              plan.step_limit_seconds_min),
            round=round,
            points=group.points,
            own=system == "hawser",
        )
        for group in plan.groups
        for system in systems
    ]


def own_steps(plan, programs):
    return [
        Step(
            name=f"hawser: {own.name}",
            system="",
            command=[programs[own.program], *own.flags],
            expected_seconds=own.seconds,
            limit_seconds=max(own.seconds * OWN_SECONDS_FACTOR + 20, plan.step_limit_seconds_min),
            round=0,
            own=True,
        )
        for own in plan.own
        if own.program in programs
    ]


def steps(plan, peer_programs, own_programs):
    found = own_steps(plan, own_programs)
    for round in range(plan.rounds):
        found += peer_steps(plan, peer_programs, round)
    return found


class Clock:
    """Says how much is done, and how long the rest takes: by how long the steps took until now, and `limit` seconds in all at
    most."""

    def __init__(self, expected, limit, now=time.monotonic):
        self.now = now
        self.begin = now()
        self.expected, self.limit = expected, limit
        self.done = 0.0

    def seconds(self):
        return self.now() - self.begin

    def left(self):
        slower = self.seconds() / self.done if self.done > 2 else 1
        return max(0, min((self.expected - self.done) * slower, self.limit - self.seconds()))

    def text(self, name):
        left = int(self.left() + 0.5)
        share = self.done / self.expected if self.expected else 1
        return f"[{share:4.0%}, {left // 60}:{left % 60:02d} left] {name}"


def measure(plan, peer_programs, own_programs, results, say, run=run, clock=None):
    """Adds lines and failures to `results`. A program that fails costs its own figures only."""
    todo = steps(plan, peer_programs, own_programs)
    clock = clock or Clock(sum(step.expected_seconds for step in todo), plan.limit_seconds)
    results.point_seconds = plan.point_seconds(len(peer_programs))
    late, failed = [], set()
    for step in todo:
        left = plan.limit_seconds - clock.seconds()
        if step.name in failed:
            pass  # It would fail again, or hang again.
        elif left < min(step.expected_seconds, plan.limit_seconds / 2) * 0.7:
            late.append(step)
        else:
            rounds = f", round {step.round + 1} of {plan.rounds}" if step.points and plan.rounds > 1 else ""
            say(clock.text(step.name + rounds))
            limit = min(step.limit_seconds, left + LATE_SECONDS_MAX)
            done = run(step.command, limit)
            if done.timed_out and limit < step.limit_seconds:
                late.append(step)  # The whole measurement ran out of time, not the program.
                keep(step, done, results)
            elif take(step, done, results, say):
                failed.add(step.name)
            results.rounds = max(results.rounds, step.round + 1)
        clock.done += step.expected_seconds
    say_late(plan, late, results, say)
    return clock.seconds()


def take(step, done, results, say):
    """True if the step failed."""
    faults = [fault(line) for line in done.lines] if step.points else []
    texts = [text for text in [done.failure, *faults] if text]
    good = keep(step, done, results)
    if step.points and not texts and len(good) < len(step.points):
        texts.append(f"printed {len(good)} lines for {len(step.points)} points")
    if not step.points and not texts and not good:
        texts.append("printed nothing")
    if texts:
        say(f"FAILED: {step.name}: {texts[0]}")
        results.failures.append({"program": step.name, "own": step.own, "text": texts[0], "command": " ".join(step.command)})
    return bool(texts)


def keep(step, done, results):
    """Adds the lines that say something."""
    good = [line for line in done.lines if not (step.points and fault(line))]
    results.lines += [{**line, "round": step.round} for line in good]
    return good


def say_late(plan, late, results, say):
    """What the time was not enough for is told, not passed over."""
    if not late:
        return
    first = {}
    for step in late:
        if step.round == 0:
            system, _, name = step.name.partition(": ")
            first.setdefault(name, []).append(words.system(system))
    texts = [f"{name} ({', '.join(systems)})" for name, systems in first.items()]
    later = sum(step.round > 0 for step in late)
    texts += [f"{words.plural(later, 'run')} of later rounds"] if later else []
    text = f"After {plan.limit_seconds:g} s the measurement ended. It left out: {', '.join(texts)}."
    results.about["left out"] = text
    say(text)
