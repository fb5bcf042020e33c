#!/usr/bin/python3 -B
"""How fast is Hawser, beside raw sockets and other systems, on this machine? Runs benchmarks and writes one page:

    ./bazelw run //bench:report                     ten to fifteen minutes after the build
    ./bazelw run //bench:report -- --quick          two minutes after the build

    --out=FILE            the page, "hawser-report.html" in the folder that you are in if not given; what was measured is
                          written beside it, as FILE with .json for .html
    --from=FILE.json      measures nothing: makes the page of what was saved
    --pictures=FOLDER     also writes two charts on a light ground, for a document: latency.svg and in_flight.svg, each the
                          first of its picture
    --tiny                some seconds, for the test; its figures say nothing

The exit status is 0, 1 if a program of Hawser failed, 2 if it was called wrongly, or 130 if it was interrupted. A program that
fails or hangs costs its own figures only, and the page says so.
"""

import argparse
import os
import resource
import sys

import look
import machine
import measure
import page
import peers
import plan
import words
from pictures import pictures
from results import FormatError, Results

STANDALONE = ("latency", "in_flight")
OWN_PROGRAMS = ("paced", "beside_bulk", "threads", "connections")


def say(text):
    print(f"report: {text}", file=sys.stderr, flush=True)


class WrongCall(Exception):
    """What the user asked for does not work."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise WrongCall(f"{message}; --help explains the flags")


def parse(arguments):
    parser = Parser(allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                    usage=argparse.SUPPRESS, add_help=False)
    hidden = {"help": argparse.SUPPRESS}
    parser.add_argument("--help", action="help", **hidden)
    parser.add_argument("--out", default="hawser-report.html", **hidden)
    parser.add_argument("--from", dest="saved", **hidden)
    parser.add_argument("--pictures", **hidden)
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", **hidden)
    sizes.add_argument("--tiny", action="store_true", **hidden)
    # What the target in BUILD.bazel gives: NAME=PATH of each program, and how it was built.
    parser.add_argument("--program", action="append", default=[], **hidden)
    parser.add_argument("--compilation_mode", default="opt", **hidden)
    options = parser.parse_args(arguments)
    if options.saved and (options.quick or options.tiny):
        raise WrongCall("--from measures nothing, so --quick and --tiny do not go with it")
    if not options.out.endswith(".html"):
        raise WrongCall(f"--out={options.out}: the name of the page ends with .html")
    return options


def from_caller(path):
    """As the user named it: `bazel run` starts programs in another folder."""
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path)


def check_writable(path):
    """Before minutes are spent on what cannot be written."""
    if os.path.isdir(path):
        raise WrongCall(f"{path}: is a folder")
    existed = os.path.exists(path)
    try:
        with open(path, "a", encoding="utf-8"):
            pass
        if not existed:
            os.unlink(path)
    except OSError as error:
        raise WrongCall(f"cannot write {path}: {error.strerror}") from None


def check_folder(path):
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise WrongCall(f"--pictures: cannot make {path}: {error.strerror}") from None
    for key in STANDALONE:
        check_writable(os.path.join(path, key + ".svg"))


def write(path, text):
    """The whole file or none: a reader never sees half a page."""
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return Results.from_json(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise WrongCall(f"--from: cannot read {path}: {error}") from None
    except FormatError as error:
        raise WrongCall(f"--from={path}: {error}") from None


def programs_of(options):
    """({system: path}, {own program: path})"""
    named = {}
    for each in options.program:
        name, _, path = each.partition("=")
        if not path:
            raise WrongCall(f"--program={each}: not NAME=PATH")
        named[name] = os.path.abspath(path)
    own = {name: path for name, path in named.items() if name in OWN_PROGRAMS}
    return {name: path for name, path in named.items() if name not in own}, own


def add_optional(options, workspace, systems, results):
    """Those that are built only where their packages are."""
    for peer in peers.OPTIONAL:
        if peer.system in systems:
            continue
        if options.tiny:
            results.absent[peer.system] = "not measured in a tiny run"
            continue
        program, why = peers.build(peer, workspace, options.compilation_mode, say)
        if program:
            systems[peer.system] = program
        else:
            results.absent[peer.system] = why
            say(f"{peer.system}: {why}")


def raise_files_max():
    """For the programs, which inherit it: 1,000 connections have more sockets than the usual limit of 1,024 open files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def add_unusable(cores, results):
    """Places that are not measured, because these programs may not use their cores."""
    places = plan.unusable_places(cores)
    for place in places:
        missing = words.listed(f"core {core}" for core in sorted(plan.CORES_OF_PLACES[place] - set(cores)))
        results.absent[words.PLACES[place]] = f"not measured: the system does not let the report use {missing}"
        say(f"{words.PLACES[place]}: {results.absent[words.PLACES[place]]}")
    return places


def measured(options):
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY", "")
    raise_files_max()
    systems, own = programs_of(options)
    if not systems and not own:
        raise WrongCall("no programs to run: call it as `bazelw run //bench:report`")
    chosen = plan.PLANS["quick" if options.quick else "tiny" if options.tiny else "full"]()
    results = Results(chosen.mode)
    chosen = plan.without(chosen, add_unusable(os.sched_getaffinity(0), results))
    add_optional(options, workspace, systems, results)
    results.versions = peers.versions(systems)
    flag = "" if chosen.mode == "full" else f" -- --{chosen.mode}"
    results.about = {
        "when": machine.now(),
        **machine.describe(),
        "commit": machine.commit(workspace),
        "build": f"--compilation_mode={options.compilation_mode}",
        "repeat": f"./bazelw run //bench:report{flag}\n./bazelw run //bench:report -- --from=hawser-report.json",
    }
    results.busy_before = machine.busy_before()
    if results.busy_before > page.BUSY_SHARE_MAX:
        say(f"other programs use {results.busy_before:.0%} of the cores: the figures will be worth little")
    times = machine.CpuTimes()
    seconds = measure.measure(chosen, systems, own, results, say)
    results.stolen = times.shares(machine.CpuTimes())[1]
    results.about["took"] = f"{seconds:.0f} s"
    return results


def write_all(results, options, out):
    made = pictures(results)
    write(out, page.page(results, made))
    say(f"wrote {os.path.abspath(out)}")
    for picture in made if options.pictures else ():
        if picture.key in STANDALONE and picture.charts:
            css = look.picture_css(look.LIGHT) + f"\nsvg{{background:{look.LIGHT['ground']}}}"
            path = os.path.join(from_caller(options.pictures), picture.key + ".svg")
            write(path, picture.charts[0].render(css) + "\n")
            say(f"wrote {path}")


def run(arguments):
    options = parse(arguments)
    out = from_caller(options.out)
    saved_as = out[: -len(".html")] + ".json"
    for path in [out] if options.saved else [out, saved_as]:
        check_writable(path)
    if options.pictures:
        check_folder(from_caller(options.pictures))
    if options.saved:
        results = load(from_caller(options.saved))
    else:
        results = measured(options)
        write(saved_as, results.to_json() + "\n")
    write_all(results, options, out)
    return 1 if any(failure.get("own") for failure in results.failures) else 0


def main(arguments):
    try:
        return run(arguments)
    except WrongCall as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        say("interrupted; nothing was written")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
