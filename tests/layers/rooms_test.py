#!/usr/bin/python3 -B
"""The rooms of transport/ and rpc/ include each other as drawn here, in headers and in sources, and no other circles of files
are there than these.

Usage: rooms_test.py MANIFEST, which tests/layers/includes.bzl writes.
"""

import os
import re
import sys
import unittest

# Each room, and those that it may include: all of them stand below it, so there is no circle of folders. The map in
# transport/README.md says the same.
ROOMS = {
    "measure/verbs": ["transport", "transport/poller", "transport/wire", "transport/clock", "transport/fabric"],
    "transport/lane": [
        "transport",
        "transport/connection",
        "transport/poller",
        "transport/wire",
        "transport/memory",
        "transport/clock",
        "transport/fabric",
    ],
    "transport/connection": [
        "transport",
        "transport/poller",
        "transport/sharing",
        "transport/wire",
        "transport/memory",
        "transport/log",
        "transport/clock",
        "transport/fabric/verbs",
        "transport/fabric",
    ],
    "transport": [
        "transport/poller",
        "transport/sharing",
        "transport/wire",
        "transport/memory",
        "transport/log",
        "transport/fabric/tcp",
        "transport/fabric/verbs",
        "transport/fabric",
    ],
    "transport/poller": ["transport/sharing", "transport/wire", "transport/log", "transport/clock", "transport/fabric"],
    "transport/sharing": ["transport/wire", "transport/memory", "transport/clock", "transport/fabric"],
    "transport/wire": ["transport/memory", "transport/clock", "transport/fabric"],
    "transport/memory": ["transport/log", "transport/clock", "transport/fabric"],
    "transport/log": ["transport/fabric"],
    "transport/clock": ["transport/fabric"],
    "transport/fabric/tcp": ["transport/fabric"],
    "transport/fabric/verbs": ["transport/fabric"],
    "transport/fabric": [],
}

# The same in rpc/; rpc/README.md has the order. Its own files are both above and below the rooms: see the next two.
RPC_ROOMS = {
    "rpc/server": ["rpc/client", "rpc/serving", "rpc/wire"],
    "rpc/services": ["rpc/wire"],
    "rpc/client": ["rpc/serving", "rpc/wire"],
    "rpc/serving": ["rpc/wire"],
    "rpc/wire": [],
}

# What each of these rooms includes of rpc/ itself, without its ending. A room does not see what is made of it.
RPC_BELOW = {
    "rpc/server": ["buffer", "channel", "method_table", "options", "server_extension", "service", "shared_memory", "stats"],
    "rpc/services": ["call", "channel", "method_table", "options", "server_context", "server_extension"],
    "rpc/client": ["metadata", "method", "options", "service", "status", "trace"],
    "rpc/serving": ["kept", "metadata", "method_table", "options", "server_context", "status", "trace"],
    "rpc/wire": ["interceptor", "metadata", "method", "options", "status", "trace"],
}

# What a file of rpc/ itself, a header and its source, includes of the rooms. The others include none.
RPC_ABOVE = {
    "arrival_counter": ["rpc/wire"],
    "call": ["rpc/client", "rpc/wire"],
    "channel": ["rpc/client", "rpc/wire"],
    "dynamic_call": ["rpc/client", "rpc/wire"],
    "executor": ["rpc/wire"],
    "first_of": ["rpc/client"],
    "otlp_trace_sink": ["rpc/wire"],
    "registered_memory": ["rpc/wire"],
    "remote_memory": ["rpc/client"],
    "server": ["rpc/server", "rpc/services"],
    "server_context": ["rpc/serving", "rpc/wire"],
    "service": ["rpc/wire"],
    "shared_memory": ["rpc/wire"],
    "sleep": ["rpc/serving", "rpc/wire"],
    "status": ["rpc/wire"],
    "status_page": ["rpc/server"],
    "task": ["rpc/wire"],
    "trace": ["rpc/wire"],
}

# One room includes of another only these.
ONLY = {
    # Who the peer is, over RDMA with credentials.
    ("transport/lane", "transport/connection"): [
        ("lane_opening", "prover"),
    ],
    # The formulas of what a NIC pins. What a connection does with a fabric is in fabric.h.
    ("transport/connection", "transport/fabric/verbs"): [
        ("pinned_rings", "options"),
        ("pinned_rings", "rings"),
    ],
}

# Where there are no circles of files but those of CIRCLES. A file is a header and its source.
WITHOUT_CIRCLES = ("base/", "measure/", "observe/", "rpc/", "services/", "tls/", "transport/")
# Of those of rpc/: a bound for who adds to CIRCLES.
RPC_CIRCLE_MAX = 4
CIRCLES = [
    # A call, and what keeps it, has it wait and sends it.
    [f"rpc/client/{name}" for name in ("call_pool", "call_queue", "call_sender", "untyped_call")],
    # A group posts to its channels. The lane of a channel asks it where it leads, and hears from it that its session has ended.
    [f"rpc/client/{name}" for name in ("channel_core", "connection_group", "lane_access", "remote_lane")],
    # A handler's call, its connection, and what an application sees of them.
    ["rpc/server_context", "rpc/serving/server_call", "rpc/serving/serving_connection"],
    # trace.cc has both headers' functions.
    ["rpc/trace", "rpc/wire/tracing"],
    # A pool, and what its leases, caches and slabs need of it.
    [f"transport/memory/{name}" for name in ("buffer_cache", "buffer_pool", "buffer_pool_core", "pool_worker", "slab", "slab_store")],
    # A session is made by its context, and checks the peer by that.
    ["tls/context", "tls/session"],
]

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]hawser/([^">]+)[">]', re.MULTILINE)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def file_of(path):
    return path.rsplit(".", 1)[0]


def arrows(paths, read=read):
    """Which file includes which: (from, to)."""
    return {
        (file_of(path), file_of(header)) for path in paths for header in INCLUDE.findall(read(path)) if file_of(header) != file_of(path)
    }


def circles(pairs):
    """The largest sets in which each reaches each other one, sorted; those of one alone are not among them."""
    below = {}
    for start, end in pairs:
        below.setdefault(start, set()).add(end)

    def reached(start):
        seen, new = set(), [start]
        while new:
            for each in below.get(new.pop(), ()):
                if each not in seen:
                    seen.add(each)
                    new.append(each)
        return seen

    reach = {each: reached(each) for each in below}
    return sorted({tuple(sorted(other for other in reach[each] if each in reach.get(other, ()))) for each in reach if each in reach[each]})


def room_faults(pairs, rooms, only):
    """Texts of the arrows between rooms that are not drawn, of rooms that are not, and of what is drawn and not there."""
    texts, used = [], set()
    for start, end in sorted(pairs):
        upper, lower = os.path.dirname(start), os.path.dirname(end)
        if upper == lower or lower not in rooms:
            continue
        if upper not in rooms:
            # Only what stands above all rooms may be drawn elsewhere.
            if upper.startswith(("base", "tls", "observe", "transport", "measure")):
                texts.append(f"{start} includes {end}, which is above it")
        elif lower not in rooms[upper]:
            texts.append(f"{start} includes {end}, but {upper} does not include {lower}")
        else:
            used.add((upper, lower))
            allowed = only.get((upper, lower))
            if allowed is not None and (os.path.basename(start), os.path.basename(end)) not in allowed:
                texts.append(f"{start} includes {end}, which is not among what {upper} includes of {lower}")
    return texts + [
        f"{upper} includes {lower} no more" for upper, lowers in rooms.items() for lower in lowers if (upper, lower) not in used
    ]


def public_faults(pairs, below, above):
    """Texts of the arrows between rpc/ itself and rooms that are not in RPC_BELOW or RPC_ABOVE, and of what is there no more."""
    texts = []
    used_below, used_above = {room: set() for room in below}, {file: set() for file in above}
    for start, end in sorted(pairs):
        upper, lower = os.path.dirname(start), os.path.dirname(end)
        file, header = os.path.basename(start), os.path.basename(end)
        if lower == "rpc" and upper != "rpc":
            if upper.startswith(("base", "tls", "observe", "transport", "measure")):
                texts.append(f"{start} includes {end}, which is above it")
            elif upper in below:
                used_below[upper].add(header)
                if header not in below[upper]:
                    texts.append(f"{start} includes {end}, which is not among what {upper} includes of rpc")
        elif upper == "rpc" and lower in below:
            used_above.setdefault(file, set()).add(lower)
            if lower not in above.get(file, []):
                texts.append(f"{start} includes {end}, but does not include {lower}")
    for table, used in ((below, used_below), (above, used_above)):
        texts += [f"{upper} includes {each} no more" for upper in table for each in table[upper] if each not in used[upper]]
    return texts


def drawn(page):
    """The map in the README.md of transport/: {room: what it includes}, top to bottom."""
    rooms = {}
    for line in page.split("## Rooms\n")[1].split("\n## ")[0].splitlines():
        cells = line.strip("| ").split(" | ")
        if len(cells) != 3 or "`" not in cells[0]:
            continue
        rooms[re.search(r"`([^`]+)/`", cells[0])[1]] = re.findall(r"`([^`]+)/`", cells[2])
    return rooms


class RoomsTest(unittest.TestCase):
    def setUp(self):
        self.paths = sorted({path for line in read(MANIFEST).splitlines() for path in line.split("\t")[1].split()})
        self.pairs = arrows(self.paths)

    def test_an_arrow_that_is_not_drawn_is_found(self):
        rooms = {"measure/a": ["transport/b"], "transport/b": []}
        down = ("measure/a/x", "transport/b/y")
        self.assertEqual(room_faults({down}, rooms, {}), [])
        self.assertEqual(len(room_faults(set(), rooms, {})), 1)
        for wrong in (("transport/b/y", "measure/a/z"), ("transport/c/z", "transport/b/y"), ("base/z", "transport/b/y")):
            self.assertEqual(len(room_faults({down, wrong}, rooms, {})), 1, wrong)
        self.assertEqual(room_faults({down, ("rpc/server", "transport/b/y")}, rooms, {}), [])
        only = {("measure/a", "transport/b"): [("x", "y")]}
        self.assertEqual(room_faults({down}, rooms, only), [])
        self.assertEqual(len(room_faults({down, ("measure/a/x", "transport/b/z")}, rooms, only)), 1)

    def test_a_header_of_rpc_that_a_room_must_not_see_is_found(self):
        below, above = {"rpc/wire": ["options"]}, {"server": ["rpc/wire"]}
        right = {("rpc/wire/a", "rpc/options"), ("rpc/server", "rpc/wire/a"), ("tools/x", "rpc/server"), ("rpc/server", "rpc/options")}
        self.assertEqual(public_faults(right, below, above), [])
        for wrong in (("rpc/wire/a", "rpc/server"), ("rpc/options", "rpc/wire/a"), ("transport/x", "rpc/options"), ("tls/x", "rpc/options")):
            self.assertEqual(len(public_faults(right | {wrong}, below, above)), 1, wrong)
        for gone in (("rpc/wire/a", "rpc/options"), ("rpc/server", "rpc/wire/a")):
            self.assertEqual(len(public_faults(right - {gone}, below, above)), 1, gone)

    def test_sources_count_with_their_headers(self):
        texts = {"a/x.h": "", "a/x.cc": '#include "hawser/a/x.h"\n#include "hawser/b/y.h"\n', "b/y.h": '#include "hawser/a/x.h"\n'}
        pairs = arrows(texts, texts.get)
        self.assertEqual(pairs, {("a/x", "b/y"), ("b/y", "a/x")})
        self.assertEqual(circles(pairs), [("a/x", "b/y")])

    def test_circles_are_found(self):
        self.assertEqual(circles({("a", "b"), ("b", "c"), ("a", "c")}), [])
        self.assertEqual(circles({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d")}), [("a", "b", "c"), ("d", "e")])

    def test_each_room_stands_above_what_it_includes(self):
        for rooms in (ROOMS, RPC_ROOMS):
            order = list(rooms)
            for room, below in rooms.items():
                for each in below:
                    self.assertLess(order.index(room), order.index(each), f"{room} includes {each}")

    def test_rooms_include_what_is_drawn(self):
        folders = {os.path.dirname(path) for path in self.paths if path.startswith("transport")} | {"measure/verbs"}
        self.assertEqual(folders, set(ROOMS))
        self.assertEqual(room_faults(self.pairs, ROOMS, ONLY), [])

    def test_rooms_of_rpc_include_what_is_drawn(self):
        folders = {os.path.dirname(path) for path in self.paths if path.startswith("rpc/")} - {"rpc"}
        self.assertEqual(folders, set(RPC_ROOMS))
        self.assertEqual(room_faults(self.pairs, RPC_ROOMS, {}), [])
        from_outside = [(start, end) for start, end in self.pairs if os.path.dirname(end) in RPC_ROOMS and not start.startswith("rpc/")]
        self.assertEqual(from_outside, [])

    def test_rooms_of_rpc_include_of_rpc_what_is_drawn(self):
        self.assertEqual(list(RPC_BELOW), list(RPC_ROOMS))
        self.assertEqual(public_faults(self.pairs, RPC_BELOW, RPC_ABOVE), [])

    def test_only_programs_include_services(self):
        """So what no program names is linked into none."""
        ends = [(start, end) for start, end in self.pairs if end.startswith("services/") and not start.startswith("services/")]
        self.assertTrue(ends)
        self.assertEqual([start for start, _ in ends if not start.startswith(("tools/", "examples/", "tests/", "docs/", "bench/"))], [])

    def test_the_map_is_what_is_tested(self):
        rooms = drawn(read("transport/README.md"))
        self.assertEqual(list(rooms), list(ROOMS))
        self.assertEqual({room: sorted(below) for room, below in rooms.items()}, {room: sorted(below) for room, below in ROOMS.items()})

    def test_no_files_include_in_circles(self):
        pairs = {(start, end) for start, end in self.pairs if start.startswith(WITHOUT_CIRCLES)}
        self.assertGreater(len(pairs), 300)
        found = circles(pairs)
        self.assertEqual(found, sorted(tuple(sorted(each)) for each in CIRCLES))
        self.assertLessEqual(max(len(each) for each in found if each[0].startswith("rpc/")), RPC_CIRCLE_MAX)


if __name__ == "__main__":
    MANIFEST = sys.argv.pop()
    unittest.main()
