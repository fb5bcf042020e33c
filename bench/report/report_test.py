#!/usr/bin/python3 -B
"""The report: each of its parts, and with --program=NAME=PATH a whole run with the real programs.

Usage: report_test.py [--program=NAME=PATH ...] [--compilation_mode=MODE], as BUILD.bazel has it.
"""

import json
import os
import re
import resource
import shlex
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from unittest import mock

import bounds
import chart
import compare
import look
import machine
import measure
import peers
import plan
import report
import run
import scale
import words
from compare import Comparison
from page import page
from pictures import pictures
from plan import Group, Own, Plan, Point
from results import FormatError, Results, fault

HERE = os.path.dirname(os.path.abspath(__file__))
FAKE = os.path.join(HERE, "fake_peer.py")
SYSTEMS = ("hawser", "raw", "capnp_rpc", "grpc", "thrift")


def fake(system, *flags):
    """The command of a fake; its points and seconds follow."""
    return [FAKE, f"--system={system}", *flags]


def lines_of(system, *points, flags=()):
    done = run.run([*fake(system, *flags), "--points=" + ",".join(map(Point.text, points)), "--seconds=0"], 60)
    assert not done.failure, done.failure
    return done.lines


OWN_LINES = [
    {"bench": "paced", "mode": mode, "pin": pin, "rate": rate, "pairs": 1, "p50_us": p50_us, "p99_us": 200, "p999_us": 300,
     "floor_p50_us": 30, "floor_p99_us": 60, "client_cores": 0.1, "server_cores": 0.1, "cores_of_each": 0.1}
    for pin in ("one core", "two cores", "any core")
    for rate in (100, 5000)
    for mode, p50_us in (("sleep", 80), ("spin", 50), ("adaptive", 55))
] + [
    {"bench": "paced", "mode": "adaptive", "pin": "any core", "rate": 100, "pairs": 5, "p50_us": 90, "p99_us": 400,
     "p999_us": 600, "cores_of_each": 0.004},
    {"bench": "beside_bulk", "mode": "adaptive", "pin": "one core", "from": "process", "p50_us": 40, "p99_us": 90,
     "p999_us": 100, "alone_p50_us": 20, "alone_p99_us": 45, "alone_p999_us": 50, "ratio_p99": 2},
    {"bench": "threads", "mode": "adaptive", "pin": "any core", "threads": 1, "calls_per_s": 30000, "floor_per_s": 31000,
     "ratio": 0.97, "client_cpu_s_per_million_calls": 10, "server_cpu_s_per_million_calls": 10},
    {"bench": "threads", "mode": "adaptive", "pin": "any core", "threads": 1000, "calls_per_s": 90000, "floor_per_s": 300000,
     "ratio": 0.3, "hand_off_per_s": 150000, "of_floors": 1.11, "client_cpu_s_per_million_calls": 10, "server_cpu_s_per_million_calls": 10},
    {"bench": "connections", "connections": 100, "connect_us": 200, "floor_us": 40,
     **{f"idle_{side}_{what}_kib": 7.5 for side in ("client", "server") for what in ("leased", "heap", "resident")}},
]


def fake_results(slow=1):
    """As a tiny run measures them; `slow`: times that Hawser takes longer than it would."""
    points = [point for group in plan.tiny().groups for point in group.points]
    results = Results("tiny", about={"processor": "P<1>", "when": "now"}, rounds=1, point_seconds=0.02)
    for system in SYSTEMS:
        flags = [f"--slow={slow}"] if system == "hawser" else []
        results.lines += [{**line, "round": 0} for line in lines_of(system, *points, flags=flags)]
    results.lines += OWN_LINES
    return results


class PageCase(unittest.TestCase):
    """A page is too long to be printed where it is not as it should be."""

    def assertSays(self, html, text):
        self.assertTrue(text in html, f"{text!r} is not on the page")

    def assertDoesNotSay(self, html, text):
        self.assertFalse(text in html, f"{text!r} is on the page")

    def assertMatches(self, html, pattern):
        self.assertTrue(re.search(pattern, html), f"{pattern!r} is not on the page")


class ScaleTest(unittest.TestCase):
    def test_a_logarithmic_axis_ends_at_round_numbers(self):
        axis = scale.Log(13, 870, 0, 100)
        self.assertEqual((axis.low, axis.high), (10, 1000))
        self.assertEqual([axis(10), axis(100), axis(1000)], [0, 50, 100])

    def test_ticks_of_few_decades_are_one_two_and_five(self):
        self.assertEqual(scale.Log(10, 100, 0, 1).ticks(), [10, 20, 50, 100])
        self.assertEqual(scale.Log(12, 900, 0, 1).ticks(), [10, 20, 50, 100, 200, 500, 1000])

    def test_ticks_of_many_decades_are_powers_of_ten(self):
        self.assertEqual(scale.Log(1, 1e5, 0, 1).ticks(), [1, 10, 100, 1000, 1e4, 1e5])

    def test_ticks_of_sizes_are_powers_of_two_with_whole_units(self):
        ticks = scale.Log(1, 64 << 20, 0, 1, base=2, widen=False).ticks(7)
        self.assertEqual([words.size(tick) for tick in ticks], ["1 B", "16 B", "256 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB"])

    def test_a_single_value_has_an_axis(self):
        axis = scale.Log(5, 5, 0, 100)
        self.assertTrue(0 < axis(5) < 100)

    def test_a_linear_axis_begins_at_zero(self):
        axis = scale.Linear(11.3, 100, 0)
        self.assertEqual(axis.ticks(), [0, 2.5, 5, 7.5, 10, 12.5])
        self.assertEqual([axis(0), axis(12.5)], [100, 0])

    def test_labels_move_apart_and_stay_in_order(self):
        moved = scale.spread([50, 10, 52, 51], 15, 0, 100)
        self.assertEqual(moved[1], 10)
        self.assertTrue(moved[0] + 15 <= moved[3] and moved[3] + 15 <= moved[2] <= 100)


class WordsTest(unittest.TestCase):
    def test_figures_have_three_digits_and_a_unit(self):
        texts = [words.time(value) for value in (0.0123, 7.777, 25.34, 999.6, 1234, 2.5e6)]
        self.assertEqual(texts, ["0.0123 µs", "7.78 µs", "25.3 µs", "1,000 µs", "1.23 ms", "2.50 s"])
        self.assertEqual([words.rate(value) for value in (412345.6, 0)], ["412,000", "0"])

    def test_ratios_have_two_decimals_unless_they_are_far_from_one(self):
        values = (1.04, 1.384, 0.71, 0.0123, 9.996, 14.23, 137.4)
        self.assertEqual([words.ratio(value) for value in values], ["1.04", "1.38", "0.71", "0.012", "10.0", "14.2", "137"])
        for value in (1.005, 1.2049, 1.205, 2.994999, 0.995):
            self.assertEqual(words.ratio(value), f"{words.rounded_ratio(value):.2f}")


class ChartTest(unittest.TestCase):
    def test_each_picture_is_xml_with_a_title_and_a_description(self):
        for picture in pictures(fake_results()):
            self.assertTrue(picture.charts, picture.title)
            for each in picture.charts:
                root = xml.fromstring(each.render())
                self.assertTrue(root.find("{*}title").text and root.find("{*}desc").text)
                self.assertNotIn("nan", each.render())

    def test_names_and_titles_are_escaped(self):
        drawn = chart.curves("a<b", "c&d", [chart.Curve("hawser", "<i>", [(1, 2), (2, 3)])], "h", "x", "", "y", "")
        self.assertIn("<title>a&lt;b</title><desc>c&amp;d</desc>", drawn.render())
        self.assertIn("&lt;i&gt;", drawn.render())

    def test_curves_without_points_leave_a_picture_that_says_so(self):
        self.assertIn("no figures", chart.curves("t", "d", [chart.Curve("raw", "r", [])], "h", "x", "", "y", "").render())

    def test_a_curve_that_ends_early_has_no_leader(self):
        series = [chart.Curve("raw", "r", [(1, 1), (100, 2)]), chart.Curve("grpc", "g", [(1, 1), (2, 2)])]
        drawn = chart.curves("t", "d", series, "h", "x", "", "y", "").render()
        self.assertEqual(drawn.count('class="leader"'), 1)

    def test_hawser_is_drawn_last(self):
        series = [chart.Curve(name, name, [(1, 1), (2, 2)]) for name in SYSTEMS]
        drawn = chart.curves("t", "d", series, "h", "x", "", "y", "").render()
        self.assertGreater(drawn.index('class="hawser"'), drawn.index('class="thrift"'))

    def test_shares_of_a_histogram_sum_to_one(self):
        bins = chart.bins_of([[10, 3], [12, 5], [200, 2]])
        self.assertAlmostEqual(sum(share for *_, share in bins), 1)
        self.assertEqual(chart.bins_of([]), [])

    def test_each_series_has_a_colour_on_both_grounds(self):
        for theme in (look.LIGHT, look.DARK):
            self.assertEqual(len({theme[name] for name in look.SERIES}), len(look.SERIES))


class CompareTest(unittest.TestCase):
    def told(self, *comparisons):
        return [(each.verdict, each.text) for each in compare.sentences(comparisons)]

    def test_behind_is_said_with_the_size_and_the_ratio(self):
        late = Comparison("latency", "time", "", "4 MiB", "grpc", 1400, 1000)
        self.assertEqual(self.told(late), [("behind", "At 4 MiB Hawser takes 1.40 times what gRPC takes.")])

    def test_fewer_calls_are_behind_too(self):
        late = Comparison("in_flight", "rate", "a core each", "64 in flight", "thrift", 70, 100)
        text = "At 64 in flight with a core each Hawser makes 0.70 times as many calls as Thrift makes."
        self.assertEqual(self.told(late), [("behind", text)])

    def test_ahead_is_one_sentence_and_counts_what_is_not(self):
        at_sizes = (("1 B", 30), ("1 KiB", 50), ("1 MiB", 120))
        sizes = [Comparison("latency", "time", "", at, "grpc", ours, 100) for at, ours in at_sizes]
        told = self.told(*sizes, Comparison("latency", "time", "", "1 B", "thrift", 80, 100))
        self.assertEqual(told, [
            ("behind", "At 1 MiB Hawser takes 1.20 times what gRPC takes."),
            ("ahead", "Hawser takes 0.30 and 0.50 times what gRPC takes (at 2 of 3 points) and 0.80 times what Thrift takes."),
        ])

    def test_level_is_one_hundredth_wide(self):
        each = [Comparison("latency", "time", "", "1 B", "grpc", ours, 1000) for ours in (994, 996, 1000, 1004, 1006)]
        self.assertEqual([comparison.verdict for comparison in each], ["ahead", "level", "level", "level", "behind"])

    def test_level_is_said_as_level(self):
        at_sizes = (("1 B", 1001), ("1 KiB", 999), ("1 MiB", 500))
        sizes = [Comparison("latency", "time", "", at, "grpc", ours, 1000) for at, ours in at_sizes]
        self.assertEqual(self.told(*sizes, Comparison("latency", "time", "", "1 B", "thrift", 1, 1)), [
            ("ahead", "Hawser takes 0.50 times what gRPC takes (at 1 of 3 points)."),
            ("level", "In latency Hawser is level with gRPC (at 2 of 3 points) and Thrift."),
        ])
        standing = compare.standings(sizes)[0]
        self.assertEqual((standing.behind, standing.level, standing.points), (0, 2, 3))

    def test_bytes_are_better_when_there_are_more(self):
        fewer = Comparison("throughput", "bytes", "", "16 MiB", "capnp_rpc", 2.0, 2.5)
        more = Comparison("throughput", "bytes", "", "64 KiB", "capnp_rpc", 3.0, 2.0)
        self.assertEqual((words.ratio(fewer.cost), words.ratio(more.cost)), ("1.25", "0.67"))
        self.assertEqual(self.told(fewer, more), [
            ("behind", "At 16 MiB Hawser moves 0.80 times as many bytes as Cap'n Proto RPC moves."),
            ("ahead", "Hawser moves 1.50 times as many bytes as Cap'n Proto RPC moves (at 1 of 2 points)."),
        ])

    def test_the_floor_has_a_bound_of_its_own(self):
        near = Comparison("latency", "time", "", "1 B", "raw", 190, 100)
        far = Comparison("latency", "time", "", "1 KiB", "raw", 210, 100)
        self.assertEqual([verdict for verdict, _ in self.told(near, far)], ["behind", "floor"])

    def test_standings_name_the_best_and_the_worst(self):
        late = Comparison("latency", "time", "", "4 MiB", "grpc", 1400, 1000)
        early = Comparison("in_flight", "rate", "", "64 in flight", "grpc", 400, 100)
        standing, = compare.standings([late, early])
        self.assertEqual((standing.best, standing.worst, standing.behind, standing.points), (early, late, 1, 2))


class BoundsTest(unittest.TestCase):
    # OWN_LINES, and beside_bulk at the other places.
    ALL_PLACES = OWN_LINES + [
        {**line, "pin": pin} for line in OWN_LINES if line["bench"] == "beside_bulk" for pin in ("two cores", "any core")
    ]

    def found(self, lines):
        return {bound.picture: bound for bound in bounds.bounds(Results("tiny", lines=lines))}

    def bounds_with(self, **changes):
        results = Results("tiny", lines=[dict(line) for line in self.ALL_PLACES])
        for line in results.lines:
            for name, value in changes.items():
                bench, _, field = name.partition("__")
                if line["bench"] == bench and (line.get("mode") == "adaptive"):
                    line[field] = value
        return [bound.verdict == "held" for bound in bounds.bounds(results)]

    def test_the_figure_that_is_told_and_the_verdict_agree(self):
        self.assertEqual(self.bounds_with(paced__p50_us=60.2), [True, True, True])  # 1.204 times.
        self.assertEqual(self.bounds_with(paced__p50_us=60.3), [False, True, True])  # 1.206 times.
        lines = [{**line, "p50_us": 60.3} if line.get("mode") == "adaptive" else line for line in self.ALL_PLACES]
        bound = self.found(lines)["waiting"]
        self.assertIn("at most 1.20 times", bound.rule)
        self.assertIn("is 1.21 times", bound.text)
        self.assertIn("6 of 6 figures are above the bound.", bound.text)
        self.assertEqual(self.bounds_with(beside_bulk__ratio_p99=3.004), [True, True, True])

    def test_a_bound_is_not_held_by_some_of_its_figures(self):
        few = [line for line in self.ALL_PLACES if line.get("pin") != "two cores"]
        found = self.found(few)
        self.assertEqual(found["waiting"].word, "held at 4 of 6; 2 were not measured")
        self.assertEqual(found["bulk"].word, "held at 2 of 3; 1 was not measured")
        self.assertEqual(found["processes"].word, "held")
        worse = [{**line, "ratio_p99": 4} if line.get("pin") == "one core" and "ratio_p99" in line else line for line in few]
        self.assertEqual(self.found(worse)["bulk"].word, "missed")
        self.assertIn("1 of 2 figures is above the bound; 1 more was not measured.", self.found(worse)["bulk"].text)

    def test_bounds_are_held_or_missed(self):
        self.assertEqual(self.bounds_with(), [True, True, True])
        self.assertEqual(self.bounds_with(paced__p50_us=61), [False, True, True])
        self.assertEqual(self.bounds_with(beside_bulk__ratio_p99=3.1), [True, False, True])
        self.assertEqual(self.bounds_with(paced__p99_us=1000), [True, True, False])
        self.assertEqual(self.bounds_with(paced__cores_of_each=0.02), [True, True, False])

    def test_without_figures_nothing_is_held(self):
        self.assertEqual(bounds.bounds(Results("tiny")), [])


class RunTest(unittest.TestCase):
    def run_fake(self, *flags, timeout_seconds=60):
        return run.run([*fake("raw", *flags), "--points=echo:2:32:1:1:0,echo:1:32:1:1:0", "--seconds=0"], timeout_seconds)

    def test_lines_of_a_program_are_collected(self):
        done = self.run_fake()
        self.assertEqual((len(done.lines), done.failure), (2, ""))

    def test_a_program_that_fails_is_told_with_status_and_message(self):
        done = self.run_fake("--fail")
        self.assertEqual((len(done.lines), done.failure), (1, 'exit status 1: fake_peer: <no> such "address"'))

    def test_a_program_that_hangs_is_killed_and_its_lines_are_kept(self):
        done = run.run(["/bin/sh", "-c", "echo '{\"a\":1}'; tail -f /dev/null"], 3)
        self.assertEqual((done.lines, done.failure), ([{"a": 1}], "killed after 3 s without an end"))

    def test_a_program_that_is_not_there_is_told(self):
        self.assertEqual(run.run(["/nonexistent/program"], 1).failure, "does not start: No such file or directory")

    def test_a_line_that_is_no_json_is_told(self):
        done = self.run_fake("--garbage")
        self.assertEqual(len(done.lines), 2)
        self.assertEqual(done.failure, "printed a line that is no JSON object: 'all is well'")

    def test_a_signal_has_its_name(self):
        self.assertEqual(run.run(["/bin/sh", "-c", "kill -SEGV $$"], 60).failure, "killed by SIGSEGV")


class MeasureTest(unittest.TestCase):
    PLAN = Plan("tiny", (Group("one", (Point(), Point(place="1"))),), (Own("paced", "how it waits", ("--x",), 1),), rounds=2,
                peer_seconds=1, limit_seconds=60, point_seconds_min=0.01, start_seconds=0.01)

    def measure(self, answers, now=lambda: 0.0):
        """`answers`: what a program does, by its path."""
        results, said, order = Results("tiny"), [], []

        def run_one(command, _):
            order.append(command[0])
            return answers[command[0]]

        clock = measure.Clock(10, 60, now)
        measure.measure(self.PLAN, {"hawser": "h", "raw": "r"}, {"paced": "p"}, results, said.append, run_one, clock)
        return results, said, order

    def good(self, system):
        return run.Run(lines_of(system, *self.PLAN.groups[0].points))

    def test_systems_take_turns_and_each_round_begins_with_another(self):
        _, _, order = self.measure({"h": self.good("hawser"), "r": self.good("raw"), "p": run.Run([{"bench": "paced"}])})
        self.assertEqual(order, ["p", "h", "r", "r", "h"])

    def test_medians_are_over_the_rounds(self):
        results, _, _ = self.measure({"h": self.good("hawser"), "r": self.good("raw"), "p": run.Run([{"bench": "paced"}])})
        first, second = (line for line in results.lines if line.get("system") == "hawser" and line["place"] == "2")
        first["p50_us"], other = 1.0, second["p50_us"]
        merged = results.point("hawser", Point())
        self.assertEqual((merged["p50_us"], merged["rounds"]), ((1.0 + other) / 2, 2))
        self.assertEqual((merged["p50_us_low"], merged["p50_us_high"]), (1.0, other))

    def test_an_outlier_of_three_rounds_changes_no_median(self):
        results = Results("full")
        for p50_us, p99_us, max_us, calls in ((20, 40, 90, 1000), (21, 42, 80, 1100), (900, 9000, 20000, 50)):
            results.lines.append({**lines_of("raw", Point())[0], "p50_us": p50_us, "p99_us": p99_us, "max_us": max_us,
                                  "calls": calls, "histogram": [[p50_us, calls]]})
        merged = results.point("raw", Point())
        self.assertEqual((merged["p50_us"], merged["p99_us"], merged["rounds"]), (21, 42, 3))
        self.assertEqual((merged["p50_us_low"], merged["p50_us_high"]), (20, 900))
        self.assertEqual((merged["max_us"], merged["calls"]), (20000, 2150))  # The longest of all calls, and all calls.
        self.assertEqual(merged["histogram"], [[20, 1000], [21, 1100], [900, 50]])

    def test_a_failure_costs_its_own_figures_only(self):
        results, said, order = self.measure({"h": run.Run([], "exit status 3: why"), "r": self.good("raw"), "p": run.Run([{}])})
        self.assertEqual([(each["program"], each["own"], each["text"]) for each in results.failures],
                         [("hawser: one", True, "exit status 3: why")])
        self.assertIn("FAILED: hawser: one: exit status 3: why", said)
        self.assertEqual(order.count("h"), 1)  # It is not tried again: it would fail again, or hang again.
        self.assertEqual(results.systems(), ["raw"])

    def test_a_point_without_a_line_is_a_failure(self):
        half = self.good("raw")
        half.lines.pop()
        results, _, _ = self.measure({"h": self.good("hawser"), "r": half, "p": run.Run([{}])})
        self.assertEqual(results.failures[0]["text"], "printed 1 lines for 2 points")

    def test_what_there_is_no_time_for_is_told(self):
        times = iter(range(0, 10000, 50))
        results, _, _ = self.measure({"h": self.good("hawser"), "r": self.good("raw"), "p": run.Run([{}])}, lambda: next(times))
        text = "After 60 s the measurement ended. It left out: one (Hawser, raw socket), 2 runs of later rounds."
        self.assertEqual(results.about["left out"], text)

    def test_a_program_that_the_end_cuts_short_did_not_fail(self):
        cut = self.good("hawser")
        cut.lines.pop()
        cut.failure, cut.timed_out = "killed after 1 s without an end", True
        times = iter([0, *[58] * 1000])
        results, _, _ = self.measure({"h": cut, "r": self.good("raw"), "p": run.Run([{}])}, lambda: next(times))
        self.assertEqual(results.failures, [])
        self.assertIn("left out", results.about)
        self.assertIn("hawser", results.systems())

    def test_lines_that_say_nothing_are_refused(self):
        line = lines_of("raw", Point())[0]
        self.assertEqual(fault(line), "")
        self.assertEqual(fault({**line, "p50_us": 0}), "a line of echo without a positive p50_us")
        self.assertEqual(fault({**line, "p99_us": float("nan")}), "a line of echo without a positive p99_us")
        self.assertEqual(fault({**line, "histogram": [1]}), "a histogram that is no list of pairs of numbers")
        self.assertEqual(fault({"bench": "peers"}), "a line without system, workload, place, bytes, in_flight, connections, rate")

    def test_a_busy_machine_does_not_fail_a_tiny_run(self):
        todo = measure.steps(plan.tiny(), dict.fromkeys(SYSTEMS, "p"), dict.fromkeys(report.OWN_PROGRAMS, "p"))
        self.assertEqual({step.limit_seconds for step in todo}, {120})

    def test_the_steps_of_each_plan_fit_into_its_time(self):
        for make in plan.PLANS.values():
            for systems in (3, 5):
                chosen = make()
                programs = dict.fromkeys(SYSTEMS[:systems], "p")
                todo = measure.steps(chosen, programs, dict.fromkeys(report.OWN_PROGRAMS, "p"))
                expected = sum(step.expected_seconds for step in todo)
                self.assertLess(expected, chosen.limit_seconds, f"{chosen.mode}, {systems} systems")

    def test_places_whose_cores_may_not_be_used_are_not_measured(self):
        for cores, places in (({0, 1, 2}, ()), ({0}, ("2",)), ({1}, ("1", "2")), ({2, 3}, ("1", "2"))):
            self.assertEqual(plan.unusable_places(cores), places)
            for make in plan.PLANS.values():
                left = plan.without(make(), places)
                measured = [point.place for group in left.groups for point in group.points]
                measured += [mode.split(":")[1] for own in left.own for flag in own.flags if flag.startswith("--modes=")
                             for mode in flag.partition("=")[2].split(",")]
                self.assertTrue(measured)
                self.assertFalse(set(measured) & set(places))
                self.assertTrue(all(group.points for group in left.groups))
                self.assertIn("connections", [own.program for own in left.own])

    def test_plans_of_all_sizes_have_a_time_for_each_point(self):
        for make in plan.PLANS.values():
            for systems in (1, 5):
                self.assertGreater(make().point_seconds(systems), 0)
        self.assertGreaterEqual(plan.full().rounds, 3)


class MachineTest(unittest.TestCase):
    def test_shares_are_of_what_all_cores_did(self):
        first = machine.CpuTimes("cpu  10 0 10 100 0 0 0 0 0 0\ncpu0 1\n")
        busy, stolen = first.shares(machine.CpuTimes("cpu  20 0 20 170 0 0 0 10 0 0\n"))
        self.assertAlmostEqual(busy, 0.3)
        self.assertAlmostEqual(stolen, 0.1)

    def test_what_is_not_known_is_told(self):
        self.assertEqual(machine.commit(""), "unknown: not started by `bazelw run`")
        self.assertEqual(machine.commit("/nonexistent"), "unknown: no git checkout")
        self.assertIn("processor", machine.describe())


class PeersTest(unittest.TestCase):
    GRPC = peers.OPTIONAL[0]

    def test_what_is_missing_is_named_with_its_package(self):
        with mock.patch.object(peers, "installed_version", lambda package: ""):
            program, why = peers.build(self.GRPC, "/w", "opt", print)
        self.assertEqual(program, "")
        self.assertIn("apt-get install libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc", why)

    def test_a_peer_that_does_not_build_is_told_with_the_message(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(peers, "installed_version", lambda package: "1"):
            os.makedirs(os.path.join(folder, "bench/peers"))
            open(os.path.join(folder, "bench/peers/BUILD.bazel"), "w").close()
            bazelw = os.path.join(folder, "bazelw")
            with open(bazelw, "w") as file:
                file.write('#!/bin/sh\necho "$@" >&2; exit 7\n')
            os.chmod(bazelw, stat.S_IRWXU)
            program, why = peers.build(self.GRPC, folder, "dbg", lambda text: None)
        self.assertEqual(program, "")
        self.assertEqual(why, "does not build: exit status 7: build --compilation_mode=dbg //bench/peers:grpc")

    def test_outside_of_the_checkout_it_is_not_built(self):
        with mock.patch.object(peers, "installed_version", lambda package: "1"):
            self.assertIn("own checkout", peers.build(self.GRPC, "", "opt", print)[1])


class PageTest(PageCase):
    def test_where_hawser_is_behind_the_page_says_so(self):
        results = fake_results(slow=2)
        html = page(results, pictures(results))
        self.assertMatches(html, r"Hawser takes 1\.\d+(, 1\.\d+)?( and 1\.\d+)? times what Thrift takes")
        self.assertDoesNotSay(html, "No figure of Hawser is behind")

    def test_where_it_is_not_the_page_says_so_too(self):
        results = fake_results(slow=0.2)
        results.lines = [line for line in results.lines if line["bench"] != "threads"]
        self.assertSays(page(results, pictures(results)), "No figure of Hawser is behind")

    def test_the_best_and_the_worst_say_of_what_they_are(self):
        html = page(fake_results(), pictures(fake_results()))
        self.assertMatches(html, r'<td class="text wrap"><a href="#\w+">[\w ,]+ \((p99|median)\)')

    def test_the_p99_of_few_calls_is_not_compared(self):
        results = fake_results()
        text = "A p99 of fewer than 1,000 calls is noise and is not compared."
        self.assertDoesNotSay(page(results, pictures(results)), text)
        for line in results.lines:
            if line.get("workload") == "paced" and line["rate"] == 100:
                line["calls"] = 999
        drawn = {picture.key: picture for picture in pictures(results)}
        compared = [(each.kind, each.at) for each in drawn["paced"].comparisons if each.system == "grpc"]
        self.assertEqual(compared, [("time", "100 calls a second"), ("time", "5,000 calls a second"),
                                    ("p99", "5,000 calls a second")])
        self.assertIn(text, drawn["paced"].reading)
        self.assertNotIn(text, drawn["bulk"].reading)

    def test_good_and_bad_news_have_the_same_size(self):
        css = look.stylesheet()
        for rule in (".behind{", ".ahead{", ".missed{font", ".held{font"):
            self.assertNotIn(rule, css)

    def test_what_programs_say_is_escaped(self):
        results = fake_results()
        results.failures = [{"program": "<script>", "own": True, "text": "<em>&", "command": "x"}]
        results.absent = {"grpc": "<i>"}
        results.lines += [{**lines_of("grpc", Point())[0], "skipped": "<u>"}]
        results.lines[0]["mode"] = "<s>"
        html = page(results, pictures(results))
        for text in ("<script", "<em>", "<i>", "<u>", "<s>", "P<1>"):
            self.assertDoesNotSay(html, text)
        for text in ("&lt;script&gt;", "&lt;em&gt;&amp;", "&lt;i&gt;", "&lt;u&gt;", "P&lt;1&gt;"):
            self.assertSays(html, text)

    def test_a_machine_that_others_use_is_told(self):
        results = fake_results()
        self.assertDoesNotSay(page(results, pictures(results)), "worth little")
        results.busy_before, results.stolen = 0.5, 0.1
        html = page(results, pictures(results))
        self.assertSays(html, "Other programs used 50% of the cores just before")
        self.assertSays(html, "gave 10% of the cores to other guests")

    def test_it_fetches_nothing(self):
        html = page(fake_results(), pictures(fake_results())).replace('xmlns="http://www.w3.org/2000/svg"', "")
        for text in ("http:", "https:", "<script", "src=", "@import", "url("):
            self.assertDoesNotSay(html, text)

    def test_without_any_figure_there_is_a_page(self):
        results = Results("quick")
        self.assertSays(page(results, pictures(results)), "No figures")

    def test_with_hawser_alone_there_is_a_page(self):
        results = Results("quick", lines=lines_of("hawser", Point(), Point(bytes=1024)))
        html = page(results, pictures(results))
        self.assertSays(html, "Nothing was compared: no other system was measured.")
        self.assertDoesNotSay(html, "No figure of Hawser is behind")

    def test_without_figures_of_hawser_nothing_was_compared(self):
        results = fake_results()
        results.lines = [line for line in results.lines if line.get("system") not in (None, "hawser")]
        html = page(results, pictures(results))
        self.assertEqual(html.count("Nothing was compared: Hawser was not measured."), 2)
        self.assertDoesNotSay(html, "No figure of Hawser is behind")
        self.assertDoesNotSay(html, "no other system was measured")

    def test_a_place_that_is_not_measured_is_told(self):
        results = Results("quick")
        with mock.patch.object(report, "say", lambda text: None):
            self.assertEqual(report.add_unusable({0}, results), ("2",))
        html = page(results, pictures(results))
        self.assertSays(html, "<b>a core each</b>: not measured: the system does not let the report use core 1")

    def test_saved_and_read_again_it_is_the_same_page(self):
        results = fake_results()
        again = Results.from_json(results.to_json())
        self.assertEqual(page(results, pictures(results)), page(again, pictures(again)))

    def test_what_is_no_report_is_refused(self):
        for text in ("", "[]", "{}", '{"hawser_report": 1, "bad": 1}', '{"hawser_report": 1, "mode": "m", "lines": [1]}'):
            with self.assertRaises(FormatError, msg=text):
                Results.from_json(text)


class CommandTest(PageCase):
    """report.py as a user calls it, in a folder of its own."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def call(self, *arguments, **environment):
        environment = {"PATH": os.environ.get("PATH", ""), "BUILD_WORKING_DIRECTORY": self.folder.name, **environment}
        done = subprocess.run([os.path.join(HERE, "report.py"), *arguments], capture_output=True, text=True, env=environment)
        return done.returncode, done.stderr

    def program(self, name, *flags):
        """--program of a fake."""
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {shlex.join(fake(name, *flags))} "$@"\n')
        os.chmod(path, stat.S_IRWXU)
        return f"--program={name}={path}"

    def test_wrong_calls_are_told(self):
        for arguments, text in (
            (["--slow"], "unrecognized arguments: --slow"),
            (["--quick", "--tiny"], "not allowed with argument --quick"),
            (["--out=page.txt"], "the name of the page ends with .html"),
            (["--out=none/page.html"], "none/page.html: No such file or directory"),
            (["--from=none.json"], "none.json"),
            (["--from=a.json", "--quick"], "--from measures nothing"),
            (["--quick"], "no programs to run"),
            (["--quick", "--program=raw"], "--program=raw: not NAME=PATH"),
        ):
            status, said = self.call(*arguments)
            self.assertEqual(status, 2, said)
            self.assertIn(text, said)
            self.assertNotIn("Traceback", said)

    def test_a_page_that_cannot_be_written_is_told_before_measuring(self):
        os.mkdir(self.path("page.html"))
        status, said = self.call("--tiny", self.program("raw", "--hang"), "--out=page.html")
        self.assertEqual((status, said), (2, f"report: {self.path('page.html')}: is a folder\n"))

    def test_it_is_written_where_the_user_is_and_made_again_from_what_was_saved(self):
        status, said = self.call("--tiny", self.program("hawser"), self.program("raw"))
        self.assertEqual(status, 0, said)
        with open(self.path("hawser-report.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["mode"], "tiny")
        status, said = self.call("--from=hawser-report.json", "--out=again.html", "--pictures=drawn")
        self.assertEqual(status, 0, said)
        with open(self.path("hawser-report.html")) as first, open(self.path("again.html")) as second:
            self.assertEqual(first.read(), second.read())
        for name in ("latency.svg", "in_flight.svg"):
            self.assertIn("background:#ffffff", xml.parse(self.path("drawn/" + name)).find("{*}style").text)

    def test_the_status_is_of_hawsers_own_programs(self):
        status, said = self.call("--tiny", self.program("hawser"), self.program("raw", "--fail"))
        self.assertEqual(status, 0, said)
        self.assertIn("FAILED: raw: ", said)
        status, said = self.call("--tiny", self.program("hawser", "--fail"), self.program("raw"))
        self.assertEqual(status, 1, said)
        with open(self.path("hawser-report.html")) as file:
            self.assertSays(file.read(), "&lt;no&gt; such &quot;address&quot;")

    def test_programs_may_open_as_many_files_as_the_system_lets_them(self):
        path, (before, most) = self.path("files"), resource.getrlimit(resource.RLIMIT_NOFILE)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho $(ulimit -Sn) $(ulimit -Hn) >&2; exit 1\n")
        os.chmod(path, stat.S_IRWXU)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 256), most))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (before, most))
        _, said = self.call("--tiny", f"--program=raw={path}")
        self.assertIn(f"exit status 1: {most} {most}", said)

    def test_points_that_a_program_skips_are_on_the_page(self):
        status, said = self.call("--tiny", self.program("hawser"), self.program("thrift", "--skip=frames end at 100 MiB"))
        self.assertEqual(status, 0, said)
        with open(self.path("hawser-report.html")) as file:
            self.assertSays(file.read(), "frames end at 100 MiB")

    @unittest.skipUnless(any("--program=" in argument for argument in sys.argv), "no programs given")
    def test_a_tiny_run_with_the_real_programs(self):
        status, said = self.call("--tiny", *PROGRAMS, BUILD_WORKING_DIRECTORY=self.folder.name)
        self.assertEqual(status, 0, said)
        self.assertNotIn("FAILED", said)
        results = report.load(self.path("hawser-report.json"))
        self.assertEqual(results.failures, [])
        self.assertEqual({line["bench"] for line in results.lines} & {"paced", "threads", "beside_bulk", "connections"},
                         {"paced", "threads", "beside_bulk", "connections"})
        self.assertEqual(len(bounds.bounds(results)), 3)
        with open(self.path("hawser-report.html"), encoding="utf-8") as file:
            html = file.read()
        if not results.absent.keys() & set(words.PLACES.values()):
            self.assertDoesNotSay(html, "No figures")
        self.assertDoesNotSay(html, "Nothing was compared")


if __name__ == "__main__":
    PROGRAMS = [argument for argument in sys.argv[1:] if argument.startswith(("--program=", "--compilation_mode="))]
    sys.argv = [sys.argv[0], *(["-v"] if "-v" in sys.argv else [])]
    unittest.main()
