"""What is used after it was moved from: clang-tidy, one action for each source, so that a cache holds its verdicts.

    ./bazelw build --config=tidy //...

An aspect, which --config=tidy puts on the targets. It looks at each .cc outside tests/ and third_party/ that moves something,
with the options of gcc's build, so that no header is generated for it alone. Files that are compiled as one (amalgamated.bzl)
are looked at as one, since most of the time goes to the headers that they share; what is found in one has its name and line.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("//third_party:amalgamated.bzl", "SeparateInfo")

# On a library with a use after a move: the check has to find it.
_PLANTED = "a_planted_use_after_move"

_KINDS = ["cc_binary", "cc_library", "cc_test"]

# What gcc 12 alone knows, and errors of warnings.
def _clang_knows(option):
    return option != "-fno-canonical-system-headers" and not option.startswith("-Werror") and not option.startswith("-Wno-error=")

def _looked_at(ctx):
    if ctx.rule.kind not in _KINDS or ctx.label.workspace_name:
        return False
    if _PLANTED in ctx.rule.attr.tags:
        return True
    return ctx.label.package.split("/")[0] not in ["tests", "third_party"]

def _context(target, ctx):
    """What the sources of the target can include: of a program, which offers no headers, that of its dependencies."""
    infos = [target[CcInfo]] if CcInfo in target else []
    infos += [dep[CcInfo] for dep in ctx.rule.attr.deps if CcInfo in dep]
    return cc_common.merge_cc_infos(cc_infos = infos).compilation_context

def _tidy_impl(target, ctx):
    if not _looked_at(ctx):
        return []
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = _context(target, ctx)
    files = ctx.rule.files.srcs

    # Of what a rule made, only the amalgamations were written by hand.
    written = [file for source in ctx.rule.attr.srcs for file in source.files.to_list() if file.is_source or SeparateInfo in source]
    options = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.rule.attr.copts
    defines = depset(ctx.rule.attr.defines + ctx.rule.attr.local_defines, transitive = [context.defines])

    verdicts = []
    for source in written:
        if source.extension != "cc":
            continue
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            source_file = source.path,
            user_compile_flags = options,
            include_directories = context.includes,
            quote_include_directories = context.quote_includes,
            system_include_directories = context.system_includes,
            preprocessor_defines = defines,
        )
        command = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        )
        verdict = ctx.actions.declare_file("_tidy/%s/%s" % (ctx.rule.attr.name, source.basename))
        verdicts.append(verdict)
        ctx.actions.run(
            mnemonic = "ClangTidy",
            progress_message = "Looking for uses after a move in %s" % source.short_path,
            executable = ctx.executable._tidy,
            arguments = [
                "found" if _PLANTED in ctx.rule.attr.tags else "none",
                verdict.path,
                source.path,
            ] + [option for option in command if _clang_knows(option)],
            inputs = depset(files, transitive = [context.headers]),
            outputs = [verdict],
            use_default_shell_env = True,  # With the versions of the packages that bazelw puts there.
        )
    return [OutputGroupInfo(tidy = depset(verdicts))]

tidy = aspect(
    implementation = _tidy_impl,
    attrs = {
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_tidy": attr.label(default = "@hawser//tests/tidy:tidy", executable = True, cfg = "host"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
