"""Headers that many files include, parsed once for all of them (precompiled headers of gcc and clang).

Half of the time that a file takes is what it includes of abseil, Cap'n Proto and the standard library. Over nine files of the
library the headers in common_headers.cc save 46 % of gcc's time and 34 % of clang's. Hawser's own .bazelrc has each file of the
library include that header first (--define=precompiled=yes); a workspace that uses Hawser compiles each file as it stands.

Tests have one that includes more:

    precompiled_header(
        name = "precompiled",
        src = "precompiled.cc",    # #include "tests/rpc/probe.h"
        deps = [":probe"],
    )

    hawser_cc_test(name = "call_test", precompiled = ":precompiled", ...)

Bazel gives `src` the options that it gives to any source, also those of --per_file_copt: .bazelrc chooses it together with
the tests. It includes only what each of these tests includes as well, so that they also compile without it: with another
compiler, or with --features=-precompiled_headers.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

FEATURE = "precompiled_headers"

# The first option: gcc ignores a compiled header that does not fit the options of the test, and warns. The warning is an error
# in Hawser's own workspace. The second: the .d file of the test names the headers that were compiled, because Bazel reads
# there on which files the test depends.
_GCC_USE = "-Winvalid-pch -fpch-deps -include%s"

# clang writes the absolute path of each header into the compiled one, and a test is compiled in another sandbox. So these
# options make the paths relative to the folder that the compiler runs in, which Bazel's $PWD calls /proc/self/cwd. They pass
# it as the sysroot to the compiler alone, not to the driver, which adds the include paths of the system. A file from the
# cache has another time of modification. The first option saves 0.3 s in each test.
_CLANG_MAKE = [
    "-fpch-instantiate-templates",
    "-Xclang",
    "-fno-pch-timestamp",
    "-Xclang",
    "-relocatable-pch",
    "-Xclang",
    "-isysroot",
    "-Xclang",
    "/proc/self/cwd",
]
_CLANG_USE = "-Xclang -isysroot -Xclang . -include-pch %s.gch"

def _found_by_name(headers):
    """Offers the headers to what depends on them, the first one by its name alone."""
    return CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset(headers),
        quote_includes = depset([headers[0].dirname]),
    ))

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    compiler = cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
    ).split("/")[-1]
    if "clang" in compiler:
        make, use = _CLANG_MAKE, _CLANG_USE
    elif "gcc" in compiler or "g++" in compiler:
        make, use = [], _GCC_USE
    else:
        use = ""

    # The build itself runs only what codegen/ is: compiling the header takes as long as it saves there, and a schema's code waits.
    # Bazel says only in the name of the folder that something is for the build.
    folder = ctx.bin_dir.path.split("/")[1]
    if not use or FEATURE in ctx.disabled_features or folder == "host" or "-exec-" in folder:
        header = ctx.actions.declare_file("_precompiled/%s.h" % ctx.label.name)
        ctx.actions.write(header, "")
        return [platform_common.TemplateVariableInfo({"PRECOMPILED": ""}), _found_by_name([header])]

    _, outputs = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = toolchain,
        srcs = [ctx.file.src],
        user_compile_flags = ["-x", "c++-header"] + make,
        compilation_contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps],
    )

    # Where both kinds are made, tests have the one that is not position-independent.
    compiled = (outputs.objects or outputs.pic_objects)[0]

    # gcc looks for the compiled header beside a header, and reads that one if the other does not fit.
    header = ctx.actions.declare_file("_precompiled/%s.h" % ctx.label.name)
    beside = ctx.actions.declare_file("_precompiled/%s.h.gch" % ctx.label.name)
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    ctx.actions.symlink(output = beside, target_file = compiled)
    return [
        platform_common.TemplateVariableInfo({"PRECOMPILED": use % header.path}),
        _found_by_name([header, beside, ctx.file.src]),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    doc = "Compiles `src` as a header, for tests that name this target as `precompiled`.",
    attrs = {
        "src": attr.label(
            mandatory = True,
            allow_single_file = [".cc"],
            doc = "Includes what is parsed once. A .cc, because Bazel compiles no others.",
        ),
        "deps": attr.label_list(providers = [CcInfo], doc = "The libraries whose headers these are."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    provides = [CcInfo, platform_common.TemplateVariableInfo],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
