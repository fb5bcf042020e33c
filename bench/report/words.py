"""Figures as text: three digits at most, with the unit that a reader would choose."""

SYSTEMS = {
    "hawser": "Hawser",
    "raw": "raw socket",
    "capnp_rpc": "Cap'n Proto RPC",
    "grpc": "gRPC",
    "thrift": "Thrift",
}

# Where there is little room.
SHORT_SYSTEMS = {**SYSTEMS, "capnp_rpc": "Cap'n Proto"}
# In a table of one benchmark of Hawser's: what it is compared with.
FLOORS = {"raw": "the raw socket", "one_thread": "one thread with as many in flight"}

PLACES = {"2": "a core each", "1": "one core shared", "any": "cores as the kernel decides"}


def system(name):
    return SYSTEMS.get(name, name)


def short(name):
    return SHORT_SYSTEMS.get(name, name)


def the(name):
    """A system within a sentence."""
    return FLOORS.get(name) or system(name)


def rounded(value, count=3):
    """As digits() prints it."""
    return float(f"{value:.{count - 1}e}")


def digits(value, count=3):
    """12345.6 is "12,300", 0.01234 is "0.0123": `count` digits that count."""
    if value == 0:
        return "0"
    value = rounded(value, count)
    if abs(value) >= 10 ** (count - 1):
        return f"{value:,.0f}"
    text = f"{value:.{count + 8}f}"
    lead = len(text.split(".")[0].lstrip("-0"))
    zeros = 0 if lead else len(text.split(".")[1]) - len(text.split(".")[1].lstrip("0"))
    return f"{value:.{max(0, count - lead + zeros)}f}"


def time(us):
    if us < 1000:
        return digits(us) + " µs"
    if us < 1e6:
        return digits(us / 1e3) + " ms"
    return digits(us / 1e6) + " s"


def rate(per_s):
    return digits(per_s)


def size(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count:g} B"


def rounded_ratio(value):
    """What a ratio is compared with a bound by, so that the figure on the page and what is said of it agree."""
    return round(value, 2)


def ratio(value):
    """Two decimals, as of a rounded_ratio(). Ratios that are far from each bound have two or three digits: 0.012, 14.2."""
    if value < 0.1:
        return digits(value, 2)
    return f"{value:.2f}" if rounded_ratio(value) < 10 else digits(value)


def tick(value, unit=""):
    """A round number on an axis: "20 µs", "1 ms", "100 k"."""
    if value == 0:
        return "0"
    if unit == "us":
        for step, name in ((1e6, "s"), (1e3, "ms"), (1, "µs")):
            if value >= step * 0.999:
                return f"{value / step:g} {name}"
        return f"{value * 1e3:g} ns"
    if unit == "bytes":
        return size(value)
    if unit == "times":
        return f"{value:g}×" if value >= 1 else f"1/{1 / value:g}×"
    for step, name in ((1e6, " M"), (1e3, " k")):
        if value >= step * 0.999 and unit == "per_s":
            return f"{value / step:g}{name}"
    return f"{value:g}"


def listed(texts):
    """ "a", "a and b", "a, b and c"."""
    texts = list(texts)
    if len(texts) < 2:
        return "".join(texts)
    return ", ".join(texts[:-1]) + " and " + texts[-1]


def shared(texts):
    """What all of them end with is said once: "4, 16 and 64 in flight"."""
    parts = [text.split(" ", 1) for text in texts]
    ends = {part[1] if len(part) == 2 else "" for part in parts}
    if len(texts) > 1 and len(ends) == 1 and all(part[0][:1].isdigit() for part in parts):
        return listed([part[0] for part in parts]) + f" {ends.pop()}".rstrip()
    return listed(texts)


def are(count):
    return "is" if count == 1 else "are"


def was(count):
    return "was" if count == 1 else "were"


def plural(count, noun):
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"
