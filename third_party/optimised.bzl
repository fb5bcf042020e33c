"""A program as it is with -c opt, whatever the rest is built with."""

def _opt_impl(_settings, _attr):
    return {"//command_line_option:compilation_mode": "opt"}

_opt = transition(
    implementation = _opt_impl,
    inputs = [],
    outputs = ["//command_line_option:compilation_mode"],
)

def _optimised_impl(ctx):
    binary = ctx.attr.binary[0][DefaultInfo]
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = program, target_file = binary.files_to_run.executable, is_executable = True)
    runfiles = ctx.runfiles([program]).merge(binary.default_runfiles)
    return [DefaultInfo(executable = program, files = depset([program]), runfiles = runfiles)]

optimised = rule(
    implementation = _optimised_impl,
    executable = True,
    doc = "`binary`, built with -c opt: the same program under another name.",
    attrs = {
        "binary": attr.label(cfg = _opt, executable = True, mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)
