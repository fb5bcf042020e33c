"""From values to places on a picture, with ticks at round numbers."""

import math


class Log:
    """A logarithmic axis. Its ends are the given values, widened to round ones."""

    def __init__(self, low, high, begin, end, base=10, widen=True):
        low, high = (low, high) if low < high else (low / 2, high * 2)
        self.base = base
        self.low = self._round(low, math.floor) if widen else low
        self.high = self._round(high, math.ceil) if widen else high
        self.begin, self.end = begin, end

    def __call__(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    def _round(self, value, way):
        """To 1, 2 or 5 times a power of ten, or to a power of two."""
        if self.base == 2:
            return 2.0 ** way(round(math.log2(value), 9))
        power = 10.0 ** math.floor(round(math.log10(value), 9))
        steps = [power * step for step in (1, 2, 5, 10)]
        if way is math.ceil:
            return min(step for step in steps if step >= value * (1 - 1e-9))
        return max(step for step in steps if step <= value * (1 + 1e-9))

    def ticks(self, most=8):
        """At most `most` round values that are equally far apart on the axis, or 1, 2, 5 in each decade."""
        inside = lambda value: self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)
        first = math.floor(math.log(self.low, self.base) + 1e-9)
        last = math.ceil(math.log(self.high, self.base) - 1e-9)
        if self.base == 10:
            fine = [10.0**power * step for power in range(first, last + 1) for step in (1, 2, 5)]
            fine = [value for value in fine if inside(value)]
            if len(fine) <= most:
                return fine
        for step in (1, 2, 3, 4, 5, 6, 8, 10):
            # Multiples of the step, so that 1 B, 1 KiB and 1 MiB are among them.
            powers = range(-(-first // step) * step, last + 1, step)
            values = [float(self.base) ** power for power in powers if inside(float(self.base) ** power)]
            if len(values) <= most:
                return values
        return [self.low, self.high]


class Linear:
    """A linear axis from 0."""

    def __init__(self, high, begin, end):
        self.step = nice_step(high)
        self.low, self.high = 0, self.step * math.ceil(high / self.step - 1e-9)
        self.begin, self.end = begin, end

    def __call__(self, value):
        return self.begin + value / self.high * (self.end - self.begin)

    def ticks(self, most=8):
        count = round(self.high / self.step)
        every = -(-count // most)
        return [self.step * i for i in range(0, count + 1, every)]


def nice_step(high):
    """A round step that makes four to eight of `high`."""
    power = 10.0 ** math.floor(math.log10(high / 4))
    return max(step * power for step in (1, 2, 2.5, 5) if step * power * 4 <= high * (1 + 1e-9))


def spread(places, least, low, high):
    """The same places, moved as little as it takes for neighbours to be `least` apart, within low and high."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for before, this in zip(order, order[1:]):
        moved[this] = max(moved[this], moved[before] + least)
    # What the first pass pushed down too far goes back up.
    limit = high
    for this in reversed(order):
        moved[this] = min(moved[this], limit)
        limit = moved[this] - least
    limit = low
    for this in order:
        moved[this] = max(moved[this], limit)
        limit = moved[this] + least
    return moved
