"""Whether each file of a library includes only what that library names in `deps`.

Bazel 4 lets a source include the headers of everything that its dependencies depend on. A layer that must not see
another one then needs more than visibility: what it does not name, it must not include.
"""

load("//third_party:amalgamated.bzl", "separate")

_Includes = provider(
    doc = "What a library offers, and what it includes.",
    fields = {
        "headers": "Paths of the headers that it offers to those that depend on it.",
        "lines": "Depset of lines of the manifest: of it and of all that it depends on.",
        "files": "Depset of the files that these lines name.",
    },
)

def _paths(files):
    return [file.short_path for file in files]

def _generated(target, rule):
    """What includes of a capnp_library or capnp_rpc_library begin with behind "hawser/"."""
    folder = rule.attr.strip_import_prefix[1:] + "/hawser/"
    files = target[OutputGroupInfo].generated.to_list()
    return [file.short_path[len(folder):] for file in files if file.short_path.startswith(folder)]

def _collect_impl(target, ctx):
    deps = [dep[_Includes] for dep in getattr(ctx.rule.attr, "deps", []) if _Includes in dep]
    own = []
    headers = []
    for attribute in ("hdrs", "srcs"):
        for each in getattr(ctx.rule.attr, attribute, []):
            files = [file for file in separate(each) if file.is_source]
            own += files
            if attribute == "hdrs":
                headers += _paths(each.files.to_list())
    lines = []
    if ctx.rule.kind in ("capnp_library", "capnp_rpc_library"):
        headers += _generated(target, ctx.rule)
    elif ctx.rule.kind in ("cc_library", "cc_binary", "cc_test") and not target.label.workspace_name:
        allowed = list(headers)
        for dep in deps:
            allowed += dep.headers
        lines.append("%s\t%s\t%s" % (target.label, " ".join(_paths(own)), " ".join(allowed)))
    return [_Includes(
        headers = headers,
        lines = depset(lines, transitive = [dep.lines for dep in deps]),
        files = depset(own if lines else [], transitive = [dep.files for dep in deps]),
    )]

_collect = aspect(implementation = _collect_impl, attr_aspects = ["deps"])

def _manifest_impl(ctx):
    lines = depset(transitive = [dep[_Includes].lines for dep in ctx.attr.targets])
    files = depset(transitive = [dep[_Includes].files for dep in ctx.attr.targets])
    manifest = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(manifest, "\n".join(sorted(lines.to_list())) + "\n")
    return [DefaultInfo(
        files = depset([manifest]),
        runfiles = ctx.runfiles([manifest], transitive_files = files),
    )]

includes_manifest = rule(
    implementation = _manifest_impl,
    doc = "A line for each library that `targets` depend on: label, files, headers that they may include; tabs between.",
    attrs = {"targets": attr.label_list(aspects = [_collect], mandatory = True)},
)
