"""A benchmark: a program to be run by hand, and the same program as a test with tiny sizes, so that it cannot rot."""

def benchmark(name, tiny, deps = [], testonly = False, tags = [], of_hawser = True):
    """Makes `name`, and `name`_test.

    Args:
      name: of the program; its source is name.cc.
      tiny: its flags as a test.
      deps: beside what all of Hawser have.
      testonly: it uses what tests do.
      tags: of both.
      of_hawser: it measures Hawser, so it is linked with it.
    """
    native.cc_binary(
        name = name,
        srcs = [name + ".cc"],
        deps = ([
            "//bench:bench_rpc",
            "//bench:harness",
            "//measure:loops",
            "//rpc",
            "//third_party:absl",
            "//transport:runtime",
        ] if of_hawser else []) + deps,
        tags = tags,
        testonly = testonly,
        visibility = [
            "//bench:__subpackages__",
            "//tests/softroce:__pkg__",
        ],
    )
    native.sh_test(name = name + "_test", size = "small", srcs = [":" + name], args = tiny, tags = tags)
