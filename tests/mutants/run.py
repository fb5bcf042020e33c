#!/usr/bin/env python3
"""Runs the tests with one mistake at a time in the code that they test, and prints which test catches which. See README.md.

  tests/mutants/run.py                 # all of mistakes.txt
  tests/mutants/run.py 7 20-29 'a return is posted again'     # these, by number or name
  tests/mutants/run.py --check         # only checks that each mistake still fits the code
  tests/mutants/run.py --list          # numbers and names
  tests/mutants/run.py --copy          # only makes the copy, with the mistakes in it
  tests/mutants/run.py --build         # makes and builds the copy

Exit status 1: a mistake is not caught that caught.md says is caught, or it does not fit, or a test fails without any.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLE = HERE / "mistakes.txt"
CAUGHT = HERE / "caught.md"

# The packages of the tests that can see a mistake in a folder. The first that fits counts.
PACKAGES = {
    "transport/fabric/verbs/": ["tests/transport/fabric"],
    "transport/fabric/tcp/": ["tests/transport/fabric", "tests/tls", "tests/transport", "tests/rpc"],
    "transport/": ["tests/transport", "tests/rpc", "tests/transport/fabric", "tests/sim"],
    "tls/": ["tests/tls", "tests/transport", "tests/rpc"],
    "rpc/": ["tests/rpc", "tests/sim"],
    "observe/": ["tests/observe", "tests/rpc"],
    "base/": ["tests/base", "tests/transport", "tests/rpc"],
}

# The programs of tests/sim that run seeds. Without them a mistake in a fabric is not looked for: they bring their own.
SEEDS = {"//tests/sim:exchange_seeds", "//tests/sim:rpc_seeds"}
SEEDS_ARGUMENTS = ["--seeds=400", "--steps=300"]

NOTHING = "nothing"


def fail(text):
    print(f"run.py: {text}", file=sys.stderr)
    sys.exit(2)


# ---- The table of mistakes


@dataclasses.dataclass
class Mistake:
    """A place in a file, and what stands there instead."""

    number: int
    name: str
    file: str
    before: list = dataclasses.field(default_factory=list)
    text: list = dataclasses.field(default_factory=list)
    replacement: list = dataclasses.field(default_factory=list)
    after: list = dataclasses.field(default_factory=list)

    def is_statement(self):
        return self.text[-1].rstrip()[-1] in ";}"

    def pattern(self):
        def of(lines):
            return r"\s+".join(re.escape(word) for word in "\n".join(lines).split())

        parts = [of(self.before), f"(?P<text>{of(self.text)})", of(self.after)]
        return re.compile(r"\s*".join(part for part in parts if part))

    def guarded(self, inner):
        replacement = "\n".join(self.replacement)
        chosen = f"::hawser::Mutant({self.number})"
        if self.is_statement():
            return f"if ({chosen}) {{ {replacement} }} else {{ {inner} }}"
        return f"({chosen} ? ({replacement}) : ({inner}))"


def read_table():
    mistakes = []
    file = None
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        where = f"{TABLE.name}:{number}"
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("== "):
            file = line[3:].strip()
        elif line[:2] not in ("- ", "+ ", "  "):
            if file is None:
                fail(f"{where}: no file yet")
            mistakes.append(Mistake(len(mistakes) + 1, line.strip(), file))
        elif not mistakes or mistakes[-1].file != file:
            fail(f"{where}: this mistake has no name")
        elif line.startswith("- "):
            if mistakes[-1].replacement or mistakes[-1].after:
                fail(f"{where}: a mistake has one place: an empty line ends it, and the next has a name")
            mistakes[-1].text.append(line[2:])
        elif line.startswith("+ "):
            mistakes[-1].replacement.append(line[2:])
        else:
            (mistakes[-1].after if mistakes[-1].text else mistakes[-1].before).append(line[2:])
    return mistakes


def find_wrong(mistakes):
    """Returns the places by file, and what is wrong."""
    wrong = []
    places = collections.defaultdict(list)
    names = collections.Counter(each.name for each in mistakes)
    wrong += [f"two mistakes are called '{name}'" for name, count in names.items() if count > 1]
    wrong += [f"'{name}' has a | in its name" for name in names if "|" in name]
    for each in mistakes:
        if not each.text:
            wrong.append(f"'{each.name}' has no text")
            continue
        if not each.is_statement() and not each.replacement:
            wrong.append(f"'{each.name}' has an expression as its text, and nothing in its place")
        path = ROOT / each.file
        found = list(each.pattern().finditer(path.read_text())) if path.exists() else []
        if len(found) != 1:
            wrong.append(f"'{each.name}' does not fit {each.file}: its text is there {len(found)} times")
            continue
        places[each.file].append((found[0].start("text"), found[0].end("text"), each))
    for file, all_of_file in places.items():
        all_of_file.sort(key=lambda place: (place[0], -place[1], place[2].number))
        for i, (start, end, each) in enumerate(all_of_file):
            for other_start, other_end, other in all_of_file[i + 1 :]:
                if start < other_start < end < other_end:
                    wrong.append(f"'{each.name}' and '{other.name}' overlap in {file}")
    return places, wrong


def with_mistakes(source, places):
    """The source of a file with all its mistakes, each behind its number. `places`: sorted, the outer ones first."""
    places = list(places)

    def rendered(start, end):
        out = []
        at = start
        while places and places[0][0] < end:
            inner_start, inner_end, mistake = places.pop(0)
            out.append(source[at:inner_start])
            out.append(mistake.guarded(rendered(inner_start, inner_end)))
            at = inner_end
        out.append(source[at:end])
        return "".join(out)

    return PRELUDE + rendered(0, len(source))


# One function for all files. It reads the environment once.
PRELUDE = """#ifndef HAWSER_MUTANT_
#define HAWSER_MUTANT_
#include <cstdlib>
namespace hawser {
inline bool Mutant(int number) {
  static const int chosen = [] {
    const char* const text = std::getenv("HAWSER_MUTANT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return number == chosen;
}
}  // namespace hawser
#endif
#line 1
"""


# ---- The copy

# Files of the copy that are none of this checkout.
WITHOUT = "without_mistakes.json"
KEPT = {".bazelrc.user", WITHOUT}
# Says that a folder is such a copy, in which files may be deleted.
MARK = ".hawser_mutants"


def make_copy(folder, places):
    folder = folder.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        fail(f"{folder} has files, and is no copy that this program made: name another folder, or an empty one")
    if ROOT.resolve() == folder or ROOT.resolve() in folder.parents or folder in ROOT.resolve().parents:
        fail(f"{folder} and {ROOT} contain each other")
    write(folder / MARK, b"", 0o644)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    ).stdout.decode()
    wanted = {}
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_symlink() or not path.is_file():
            continue
        wanted[name] = path
    for name, path in wanted.items():
        content = path.read_bytes()
        if name in places:
            content = with_mistakes(content.decode(), places[name]).encode()
        write(folder / name, content, path.stat().st_mode & 0o777)
    # What the mistakes lead to need not be without warnings.
    files = "|".join(re.escape(name) for name in sorted(places))
    write(folder / ".bazelrc.user", f"build --per_file_copt=^({files})$,^bazel-out/.*/_amalgamated/.*$@-w\n".encode(), 0o644)
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if name.startswith("bazel-") or path.is_dir() or name in wanted or name in KEPT or name == MARK:
            continue
        path.unlink()


def write(path, content, mode):
    """Leaves a file alone that is as it should be: what depends on it is not built again."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    path.chmod(mode)


def bazel(folder, *arguments):
    result = subprocess.run(["./bazelw", *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        fail(f"bazelw {arguments[0]} has failed in {folder}")
    return result.stdout.split()


def targets_of(folder, packages):
    """The programs that can be run, by package: tests that need no device, and the seeds."""
    if not packages:
        return {}
    each = " union ".join(f"//{package}:all" for package in packages)
    query = f"kind(cc_test, {each}) except attr(tags, manual, {each})"
    targets = bazel(folder, "query", "--noshow_progress", query)
    if "tests/sim" in packages:
        targets += sorted(SEEDS)
    by_package = collections.defaultdict(list)
    for target in targets:
        by_package[target[2:].split(":")[0]].append(target)
    return by_package


# ---- Running a test


@dataclasses.dataclass
class Result:
    failed: bool
    case: str = ""  # The first that failed.
    how: str = ""
    seconds: float = 0
    seconds_of_cases: dict = dataclasses.field(default_factory=dict)


class Runner:
    """Runs programs of the copy. Thread: any."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()
        self.locks = collections.defaultdict(threading.Lock)
        self.without = {}  # Results without a mistake, by target.
        # Kept until a test is built again: what it took without a mistake.
        self.file = folder / WITHOUT
        self.kept = json.loads(self.file.read_text()) if self.file.exists() else {}

    def program(self, target):
        package, name = target[2:].split(":")
        return self.folder / "bazel-bin" / package / name

    def passes_without(self, target):
        with self.lock:
            lock = self.locks[target]
        with lock:
            if target not in self.without:
                built_ns = self.program(target).stat().st_mtime_ns
                kept = self.kept.get(target, {})
                if kept.get("built_ns") == built_ns:
                    result = Result(False, seconds=kept["seconds"], seconds_of_cases=kept["seconds_of_cases"])
                else:
                    result = self.run(target)
                    if result.failed:
                        result = self.run(target)
                with self.lock:
                    self.without[target] = result
                    if result.failed:
                        print(f"run.py: {target} fails without any mistake, at {result.case}: it is left out", file=sys.stderr)
                    else:
                        self.kept[target] = {
                            "built_ns": built_ns,
                            "seconds": result.seconds,
                            "seconds_of_cases": result.seconds_of_cases,
                        }
                        self.file.write_text(json.dumps(self.kept))
            return not self.without[target].failed

    def seconds_of(self, target):
        return self.kept.get(target, {}).get("seconds", 1)

    def run(self, target, mistake=0, case="", limit=600):
        program = self.program(target)
        runfiles = pathlib.Path(f"{program}.runfiles")
        workspace = runfiles / "hawser"
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
            "TEST_SRCDIR": str(runfiles),
            "TEST_WORKSPACE": "hawser",
            "GTEST_FAIL_FAST": "1",
        }
        if "HOME" in os.environ:
            environment["HOME"] = os.environ["HOME"]
        if mistake:
            environment["HAWSER_MUTANT"] = str(mistake)
        arguments = [str(program)]
        if target in SEEDS:
            arguments += SEEDS_ARGUMENTS if not case else [f"--seed={case.split()[1]}", SEEDS_ARGUMENTS[1]]
        elif case:
            arguments.append(f"--gtest_filter={case}")
        with tempfile.TemporaryDirectory(prefix="mutant") as scratch, tempfile.TemporaryFile() as output:
            environment["TEST_TMPDIR"] = scratch
            start = time.monotonic()
            process = subprocess.Popen(
                arguments,
                cwd=workspace if workspace.is_dir() else self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            status = None
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                pass
            seconds = time.monotonic() - start
            # Its children, too.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            # The end of a huge output has the verdict, but its first failure is at the beginning.
            output.seek(0)
            text = output.read(8 << 20).decode(errors="replace")
        return self.judge(status, seconds, text)

    def judge(self, status, seconds, text):
        ran = re.findall(r"^\[ RUN      \] (\S+)", text, re.M)
        cases = {name: int(ms) / 1000 for name, ms in re.findall(r"^\[       OK \] (\S+).* \((\d+) ms\)", text, re.M)}
        if status == 0:
            return Result(False, seconds=seconds, seconds_of_cases=cases)
        failed = re.search(r"^\[  FAILED  \] ([^\s,]+)", text, re.M)
        broken = re.search(r"^(seed \d+): (.*)", text, re.M)
        case = failed[1] if failed else broken[1] if broken else ran[-1] if ran else ""
        how = "hangs" if status is None else f"signal {-status}" if status < 0 else "fails"
        return Result(True, case, how, seconds, cases)

    def limit_of(self, target, case=""):
        """Ten times of what it takes without a mistake, and ten seconds more, but not for ever."""
        result = self.without[target]
        seconds = result.seconds_of_cases.get(case, result.seconds) if case else result.seconds
        return min(10 * seconds, seconds + 30) + 10

    def catches(self, target, mistake, case=""):
        """Returns the result if the test fails with the mistake each time, and not without it; otherwise None."""
        if not self.passes_without(target):
            return None
        first = self.run(target, mistake, case, self.limit_of(target, case))
        if not first.failed:
            return None
        # A test that fails now and then on a busy machine catches nothing.
        again = first.case or case
        limit = self.limit_of(target, again)
        if again and self.run(target, 0, again, limit).failed:
            return None
        if first.how == "hangs":
            return first
        second = self.run(target, mistake, again, limit)
        if second.failed:
            return dataclasses.replace(second, case=again)
        # Only what runs before it makes it fail.
        second = self.run(target, mistake, case, self.limit_of(target, case))
        return second if second.failed and not self.run(target, 0, case, self.limit_of(target, case)).failed else None


# ---- The table of what catches which


@dataclasses.dataclass
class Row:
    file: str
    test: str
    case: str = ""
    how: str = ""
    seconds: str = ""


def read_caught():
    rows = {}
    if not CAUGHT.exists():
        return rows
    for line in CAUGHT.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 6 and cells[0] != "mistake":
            rows[cells[0]] = Row(*cells[1:])
    return rows


def caught_text(mistakes, rows):
    known = [(each, rows[each.name]) for each in mistakes if each.name in rows]
    missed = [each for each, row in known if row.test == NOTHING]
    # Their tests are guesses.
    open_ones = [each for each, row in known if not row.seconds]
    lines = [
        "# Which test catches which mistake",
        "",
        "`run.py` writes this file. A run begins with the test that is named here.",
        "",
        f"{len(known)} mistakes, {len(known) - len(missed) - len(open_ones)} caught, "
        + (f"{len(open_ones)} not looked for yet (those without seconds), " if open_ones else "")
        + f"{len(missed)} not caught"
        + (":" if missed else "."),
    ]
    if missed:
        lines += [""] + [f"- {each.name} ({each.file})" for each in missed]
    lines += ["", "| mistake | file | caught by | case | how | seconds |", "|---|---|---|---|---|---|"]
    for each, row in known:
        test = row.test if row.test == NOTHING else f"`{row.test}`"
        lines.append(f"| {each.name} | {each.file} | {test} | {row.case} | {row.how} | {row.seconds} |")
    return "\n".join(lines) + "\n"


# ---- The search


def packages_of(file):
    return next((packages for folder, packages in PACKAGES.items() if file.startswith(folder)), [])


def order_of(mistake, by_package, runner):
    """The tests that can see it: those of the same name first, then package by package, the quick ones first."""
    stem = pathlib.PurePath(mistake.file).stem
    targets = [target for package in packages_of(mistake.file) for target in by_package.get(package, [])]
    if mistake.file.startswith(("transport/fabric/", "tls/", "observe/", "base/")):
        targets = [target for target in targets if target not in SEEDS]
    position = {package: i for i, package in enumerate(packages_of(mistake.file))}

    def key(target):
        package, name = target[2:].split(":")
        return (not name.startswith(stem), position[package], runner.seconds_of(target))

    return sorted(targets, key=key)


def look_for(mistake, row, by_package, runner):
    start = time.monotonic()
    targets = order_of(mistake, by_package, runner)
    if row is not None and row.test in targets:
        # What is quick and likely first: the case alone, then its test.
        if row.case and (result := runner.catches(row.test, mistake.number, row.case)):
            return Row(mistake.file, row.test, row.case, result.how, f"{result.seconds:.1f}")
        targets.remove(row.test)
        targets.insert(0, row.test)
    for target in targets:
        if result := runner.catches(target, mistake.number):
            return Row(mistake.file, target, result.case, result.how, f"{result.seconds:.1f}")
    return Row(mistake.file, NOTHING, "", "", f"{time.monotonic() - start:.0f}")


def chosen_of(mistakes, words):
    if not words:
        return mistakes
    chosen = []
    for word in words:
        if match := re.fullmatch(r"(\d+)(?:-(\d+))?", word):
            numbers = range(int(match[1]), int(match[2] or match[1]) + 1)
            found = [each for each in mistakes if each.number in numbers]
        else:
            found = [each for each in mistakes if each.name == word]
        if not found:
            fail(f"there is no mistake {word}")
        chosen += found
    return chosen


def check(mistakes, wrong):
    rows = read_caught()
    names = {each.name for each in mistakes}
    wrong = wrong + [f"'{name}' of {CAUGHT.name} is no mistake of {TABLE.name}" for name in rows if name not in names]
    wrong += [f"'{name}' is not in {CAUGHT.name}: let run.py find what catches it" for name in names if name not in rows]
    for text in wrong:
        print(f"run.py: {text}", file=sys.stderr)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mistakes", nargs="*", help="numbers, ranges of them, or names")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--copy", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--no-build", action="store_true", help="the copy is built, as far as it is needed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin with no other mistake after this time")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(cache) / "hawser" / "mutants")
    options = parser.parse_args()

    mistakes = read_table()
    places, wrong = find_wrong(mistakes)
    if options.check:
        return check(mistakes, wrong)
    if options.list:
        for each in mistakes:
            print(f"{each.number:4} {each.name} ({each.file})")
        return 0
    if wrong:
        return check(mistakes, wrong)
    chosen = chosen_of(mistakes, options.mistakes)

    folder = options.folder.resolve()
    if not options.no_build:
        folder.mkdir(parents=True, exist_ok=True)
        make_copy(folder, places)
        print(f"the copy with the mistakes: {folder}", file=sys.stderr)
    if options.copy:
        return 0
    by_package = targets_of(folder, sorted({package for each in chosen for package in packages_of(each.file)}))
    runner = Runner(folder)
    if options.no_build:
        by_package = {
            package: [target for target in targets if runner.program(target).exists()]
            for package, targets in by_package.items()
        }
    else:
        targets = sorted(target for of_package in by_package.values() for target in of_package)
        bazel(folder, "build", "--noshow_progress", "--color=no", "--curses=no", *targets)
    if options.build:
        return 0

    start = time.monotonic()
    before = read_caught()
    rows = dict(before)
    lock = threading.Lock()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:

        def look(mistake):
            if time.monotonic() - start > options.seconds:
                return None
            row = look_for(mistake, before.get(mistake.name), by_package, runner)
            with lock:
                rows[mistake.name] = row
                print(f"{mistake.number:4} {mistake.name:60} {row.test} {row.case} {row.how} {row.seconds} s", flush=True)
                CAUGHT.write_text(caught_text(mistakes, rows))
            return row

        found = [(each, row) for each, row in zip(chosen, pool.map(look, chosen)) if row is not None]
    left_out = [target for target, result in runner.without.items() if result.failed]
    missed = [
        each.name
        for each, row in found
        if row.test == NOTHING and (each.name not in before or before[each.name].test != NOTHING)
    ]
    caught = sum(row.test != NOTHING for _, row in found)
    print(f"{caught} of {len(found)} caught, {time.monotonic() - start:.0f} s", file=sys.stderr)
    for name in missed:
        print(f"run.py: '{name}' was not caught", file=sys.stderr)
    return 1 if missed or left_out else 0


if __name__ == "__main__":
    sys.exit(main())
