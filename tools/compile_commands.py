#!/usr/bin/env python3
"""Writes compile_commands.json, which clangd and clang-tidy read, for the workspace that it is run in:

    ./bazelw run //tools:compile_commands                            # Hawser's own
    /path/to/hawser/bazelw run @hawser//tools:compile_commands       # one that uses Hawser
    ... -- //greeter/... --config=asan                               # for these targets, with Bazel's options

It asks Bazel (`bazel aquery`) how each file of the targets is compiled, //... if none is named, and each file
of what they depend on. Bazel also makes the headers that the commands refer to. Run it again when a BUILD file
or a schema has changed. Exit status 0, or that of Bazel; if some targets cannot be analysed, the rest is
written.
"""

import json
import os
import re
import subprocess
import sys

# Left out: options of gcc 12 that clang 14 refuses, those that make errors of warnings, which clang has
# other ones of, those that write a file of dependencies, which are Bazel's, and compiled headers, which only the
# compiler that made them reads (third_party/precompiled.bzl).
DROPPED = re.compile(
    r"-fno-canonical-system-headers|-Werror(=.*)?|-Wno-error=.*|-MD|-fpch-deps|-include.*/_precompiled/.*"
)
DROPPED_WITH_VALUE = ("-MF", "-include-pch")

# What may stand before a path in the same argument.
PATH = re.compile(r"(-I|-iquote|-isystem|-include)?((bazel-out|external)/.*)")

# Built with these, a target makes what its compilation reads and no more: the headers that rules generate
# and the links that let a header be included as "hawser/...". ("generated" is capnp_rpc_library's.)
HEADERS_ONLY = "--output_groups=compilation_prerequisites_INTERNAL_,generated"

# Each file has a command of its own (third_party/amalgamated.bzl).
ALONE = "--define=amalgamated=no"

# Made for tools that the build runs: a generated source is there once more for the targets.
HOST = re.compile(r"bazel-out/(host|[^/]*-exec-[^/]*)/")


class Translation:
    """Turns commands that Bazel runs in its execution root into commands for the workspace that is edited."""

    def __init__(self, workspace, execution_root, output_base):
        self.workspace = workspace
        self.roots = {"bazel-out": execution_root, "external": output_base}

    def absolute(self, argument):
        """An argument with the path of a generated file, or of one in another repository, from the root."""
        match = PATH.fullmatch(argument)
        if not match:
            return argument
        option, path, root = match.groups()
        return (option or "") + os.path.join(self.roots[root], path)

    def source(self, argument):
        """The path under which a source is edited: not the link that Bazel has to a local repository."""
        path = os.path.join(self.workspace, self.absolute(argument))
        return os.path.realpath(path) if argument.startswith("external/") else path

    def entry(self, arguments):
        """One element of compile_commands.json."""
        file = self.source(arguments[arguments.index("-c") + 1])
        kept = []
        previous = ""
        for argument in arguments:
            if previous == "-c":
                kept.append(file)
            elif not {previous, argument}.intersection(DROPPED_WITH_VALUE) and not DROPPED.fullmatch(argument):
                kept.append(self.absolute(argument))
            previous = argument
        kept.append("-Wno-unknown-warning-option")
        return {"directory": self.workspace, "file": file, "arguments": kept}


def compile_commands(aquery, translation):
    """The entries for what `bazel aquery --output=jsonproto` printed: one for each source, sorted by its path."""
    entries = {}
    for action in aquery.get("actions", []):
        arguments = action["arguments"]
        if "-c" not in arguments:
            continue
        source, output = (arguments[arguments.index(option) + 1] for option in ("-c", "-o"))
        if HOST.match(source):
            continue
        entry = translation.entry(arguments)
        # The command for a target goes before the one for a tool that the build runs.
        if entry["file"] not in entries or not HOST.match(output):
            entries[entry["file"]] = entry
    return [entries[file] for file in sorted(entries)]


def bazel(workspace, *arguments):
    """What Bazel prints. A failure is an exception, except for a partial one (exit status 1 with --keep_going)."""
    done = subprocess.run(["bazel", *arguments], cwd=workspace, stdout=subprocess.PIPE, text=True)
    if done.returncode == 1 and "--keep_going" in arguments:
        message = "compile_commands: bazel %s failed in part; its messages say why"
        print(message % arguments[0], file=sys.stderr)
    else:
        done.check_returncode()
    return done.stdout


def main(arguments):
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not workspace:
        sys.exit("compile_commands: run by: bazel run @hawser//tools:compile_commands")
    if "-c" in arguments:
        sys.exit("compile_commands: options have no separate values here: write --compilation_mode=opt, not -c opt")
    # First what bazelw adds to each of its commands.
    options = os.environ.get("HAWSER_BAZEL_OPTIONS", "").splitlines()
    options += [ALONE] + [a for a in arguments if a.startswith("-")]
    targets = [a for a in arguments if not a.startswith("-")] or ["//..."]
    quiet = ["--keep_going", "--ui_event_filters=-info", "--noshow_progress"]

    info = bazel(workspace, "info", "execution_root", "output_base")
    info = dict(line.split(": ", 1) for line in info.splitlines())
    translation = Translation(workspace, info["execution_root"], info["output_base"])
    query = 'mnemonic("CppCompile", deps(%s))' % " + ".join(targets)
    as_json = ["--output=jsonproto", "--include_artifacts=false"]
    printed = bazel(workspace, "aquery", *quiet, *options, *as_json, query)
    bazel(workspace, "build", *quiet, *options, HEADERS_ONLY, *targets)

    entries = compile_commands(json.loads(printed or "{}"), translation)
    path = os.path.join(workspace, "compile_commands.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(entries, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)  # clangd may read it at any time.
    print("compile_commands: %s has %d files" % (path, len(entries)))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
