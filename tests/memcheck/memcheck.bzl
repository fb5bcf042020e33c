"""Tests that run once more, under valgrind's memcheck: README.md."""

def memcheck_test(name, program, arguments = [], size = "medium"):
    """Runs a test, or another program, under memcheck. Fails if it does, or if memcheck finds anything.

    Not one of `//...`: it shows little in a build without `--config=memcheck`.

    Args:
      name: the target's name.
      program: the label of what is run.
      arguments: its own.
      size: as of a test.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["memcheck.sh"],
        args = ["$(rootpath %s)" % program] + arguments,
        data = [
            "explained.supp",
            program,
        ],
        tags = ["manual"],
    )
