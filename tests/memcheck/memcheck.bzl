"""Tests that run once more, under valgrind's memcheck: README.md."""

_SHARED = [
    "explained.supp",
    "options.sh",
    "//third_party/packages:valgrind",
]

def memcheck_sh_test(name, srcs, data, size, args = []):
    """A script that runs programs under memcheck. Manual: without --config=memcheck it finds little.

    Args:
      name: the target's name.
      srcs: the script.
      data: what it needs beside options.sh.
      size: as of a test.
      args: its arguments.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = srcs,
        args = args,
        data = _SHARED + data,
        tags = ["manual"],
    )

def memcheck_test(name, program, arguments = []):
    """Runs a test, or another program, under memcheck. Fails if the program fails, or memcheck finds something.

    Args:
      name: the target's name.
      program: the label of what is run.
      arguments: its own.
    """
    memcheck_sh_test(
        name = name,
        size = "medium",
        srcs = ["memcheck.sh"],
        args = ["$(rootpath %s)" % program] + arguments,
        data = [program],
    )

def memcheck_suite(name):
    """All tests of the package. `//...` leaves both out: the suite because of its own tag. Comes last.

    Args:
      name: the target's name.
    """
    native.test_suite(
        name = name,
        tests = [":" + each for each, rule in native.existing_rules().items() if rule["kind"] == "sh_test"],
        tags = ["manual"],
    )
