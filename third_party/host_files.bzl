"""Files that are the same however the rest is compiled."""

def _host_files_impl(ctx):
    return [DefaultInfo(
        files = depset(ctx.files.srcs),
        runfiles = ctx.runfiles(files = ctx.files.srcs),
    )]

host_files = rule(
    implementation = _host_files_impl,
    doc = "A filegroup whose files are made once, in bazel-out/host, and not again for -c opt and each sanitizer.",
    attrs = {
        "srcs": attr.label_list(allow_files = True, cfg = "host"),
    },
)
