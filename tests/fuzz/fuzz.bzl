"""A fuzzer, as a program and as a test."""

def fuzzer(name, deps = []):
    """The fuzzer NAME.cc with the corpus in corpus/NAME.

    Built with --config=fuzz it is libFuzzer's; with anything else replay.cc runs its corpus, and a little more.

    Args:
      name: of the program; the test is called NAME_test.
      deps: what it is about.
    """
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"] + select({
            ":libfuzzer": [],
            "//conditions:default": ["replay.cc"],
        }),
        linkopts = select({
            ":libfuzzer": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        linkstatic = True,
        deps = deps + [
            ":fuzz",
            "//tests/sim:sim_fabric",
            "//third_party:absl",
        ],
    )
    native.sh_test(
        name = name + "_test",
        size = "medium",
        srcs = ["run.sh"],
        args = [
            "$(rootpath %s)" % name,
            native.package_name() + "/corpus/" + name,
        ] + select({
            ":libfuzzer": ["fuzz"],
            "//conditions:default": ["replay"],
        }),
        data = [name] + native.glob(["corpus/%s/*" % name]),
    )
