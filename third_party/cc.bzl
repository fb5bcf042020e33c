"""Hawser's C++ rules: the native ones, with what every target of this tree has in common.

Use native.cc_binary for programs. Warnings and the language standard are flags of the build (.bazelrc), so that a user
who compiles Hawser in another workspace gets that workspace's flags; hawser.bazelrc has the standard for both.
"""

def hawser_cc_library(name, **kwargs):
    """cc_library whose headers are included as "hawser/<package>/<file>", here and from a user's workspace.

    The prefix keeps "rpc/server.h" and the like from meeting a header of the same name in a user's tree.

    Args:
      name: the target's name.
      **kwargs: as of cc_library. Visibility is private unless given: it is what keeps includes pointing down.
    """
    native.cc_library(
        name = name,
        include_prefix = "hawser/" + native.package_name(),
        **kwargs
    )

def hawser_cc_test(name, deps = [], **kwargs):
    """cc_test with GoogleTest, GoogleMock and their main().

    Linked statically: one file to run in a debugger, and no time spent in making a shared library of each dependency.

    Args:
      name: the target's name.
      deps: what the test is about; GoogleTest is added.
      **kwargs: as of cc_test.
    """
    native.cc_test(
        name = name,
        deps = deps + [
            "@hawser//third_party:gtest_main",
        ],
        linkstatic = True,
        **kwargs
    )
