"""Hawser's C++ rules: the native ones, with what every target of this tree has in common.

Use native.cc_binary for programs. Warnings and the language standard are flags of the build (.bazelrc), so that a user
who compiles Hawser in another workspace gets that workspace's flags; hawser.bazelrc has the standard for both.
"""

load(":amalgamated.bzl", "amalgamated")

# Two cores have work from the first library on, and after an edit two to three seconds are compiled.
_AMALGAMATED_FILES_MAX = 6

# What each file of Hawser's own checkout includes first (precompiled.bzl); elsewhere nothing.
_COMMON_HEADERS = select({
    "@hawser//third_party:precompiled_headers": ["@hawser//third_party:common_headers"],
    "//conditions:default": [],
})

def hawser_cc_library(name, srcs = [], deps = [], **kwargs):
    """cc_library whose headers are included as "hawser/<package>/<file>", here and from a user's workspace.

    The prefix keeps "rpc/server.h" and the like from meeting a header of the same name in a user's tree. Several sources are
    compiled as one (amalgamated.bzl); with --define=amalgamated=no each is compiled alone.

    Args:
      name: the target's name.
      srcs: as of cc_library.
      deps: as of cc_library.
      **kwargs: as of cc_library. Visibility is private unless given: it is what keeps includes pointing down.
    """
    together = [file for file in srcs if file.endswith(".cc")]
    if len(together) > 1:
        amalgamated(
            name = name + "_amalgamated",
            testonly = kwargs.get("testonly", False),
            srcs = together,
            files_max = _AMALGAMATED_FILES_MAX,
            library = name,
            visibility = ["//visibility:private"],
        )
        srcs = [file for file in srcs if file not in together] + [name + "_amalgamated"]
    native.cc_library(
        name = name,
        srcs = srcs,
        deps = deps + _COMMON_HEADERS,
        include_prefix = "hawser/" + native.package_name(),
        **kwargs
    )

def hawser_cc_test(name, deps = [], precompiled = "", **kwargs):
    """cc_test with GoogleTest, GoogleMock and their main().

    Linked statically: one file to run in a debugger, and no time spent in making a shared library of each dependency.

    Args:
      name: the target's name.
      deps: what the test is about; GoogleTest is added.
      precompiled: a precompiled_header of what the test includes, see precompiled.bzl. Tests below tests/ have GoogleTest and
        GoogleMock as such unless another one is named, so each of their sources is called *_test.cc.
      **kwargs: as of cc_test.
    """
    if not precompiled and native.package_name().startswith("tests/"):
        precompiled = "@hawser//tests/testing:precompiled"
    native.cc_test(
        name = name,
        copts = ["$(PRECOMPILED)"] if precompiled else [],
        deps = deps + [
            "@hawser//third_party:gtest_main",
        ] + ([precompiled] if precompiled else []),
        linkstatic = True,
        toolchains = [precompiled] if precompiled else [],
        **kwargs
    )
