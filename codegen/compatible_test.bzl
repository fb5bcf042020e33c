"""A test that a schema can replace its released version.

    load("@hawser//codegen:compatible_test.bzl", "capnp_compatible_test")

    capnp_compatible_test(
        name = "kv_compatible_test",
        schema = "kv.capnp",
        released = "released/kv.capnp",  # A copy of kv.capnp as it was released last.
        deps = ["//acme/base:base_rpc"],  # Those whose schemas kv.capnp imports.
    )

It fails where a client of one version and a server of the other would misunderstand each other. For each
reason it prints what has changed and where, what a peer of the other version does then, and what to do instead.
When a version is released, copy it: cp kv.capnp released/kv.capnp. Without Bazel: capnp_compatible.cc.
"""

load("//codegen:capnp_rpc.bzl", "CapnpSchemaInfo", "schema_import_path")
load("//third_party:capnp.bzl", "CAPNP_IMPORT_PATH")

def _compile(ctx, schema, deps, role):
    """Compiles one version. Returns what the compiler would tell its plugins of it."""
    request = ctx.actions.declare_file("%s.%s.request" % (ctx.label.name, role))
    infos = [dep[CapnpSchemaInfo] for dep in deps + [ctx.attr._annotations]]
    own_path = schema_import_path(ctx, schema)
    import_paths = depset([own_path], transitive = [info.import_paths for info in infos])

    args = ctx.actions.args()
    args.add(request)
    args.add(ctx.file._capnp)
    args.add_all(["compile", "-o-"])
    args.add_all(import_paths, format_each = "-I%s")
    args.add(CAPNP_IMPORT_PATH, format = "-I%s")
    if own_path != ".":
        args.add(own_path, format = "--src-prefix=%s")
    args.add(schema)
    ctx.actions.run_shell(
        mnemonic = "CapnpRequest",
        progress_message = "Compiling %s, the %s schema of %s" % (schema.short_path, role, ctx.label),
        command = 'request=$1; shift; exec "$@" >"$request"',
        arguments = [args],
        inputs = depset(
            [schema] + ctx.files._capnp_imports,
            transitive = [info.schemas for info in infos],
        ),
        tools = [ctx.file._capnp],
        outputs = [request],
    )
    return request

def _capnp_compatible_test_impl(ctx):
    schema = ctx.file.schema
    if schema == ctx.file.released:
        fail("%s is given as its own released version. Copy it when it is released, and give the copy" %
             schema.owner)
    released = _compile(ctx, ctx.file.released, ctx.attr.released_deps or ctx.attr.deps, "released")
    request = _compile(ctx, schema, ctx.attr.deps, "next")

    # What there is to say is said by the test, so that the build goes on. Only a crash ends it here.
    report = ctx.actions.declare_file(ctx.label.name + ".report")
    ctx.actions.run_shell(
        mnemonic = "CapnpCompatible",
        progress_message = "Comparing %s with its released version" % schema.short_path,
        command = '"$1" "$2" "$3" >"$4" 2>&1 || { s=$?; [ $s -le 2 ] && [ -s "$4" ]; }',
        arguments = [ctx.executable._capnp_compatible.path, released.path, request.path, report.path],
        inputs = depset(
            [released, request, schema],  # The schemas are for the lines in the messages.
            transitive = [dep[CapnpSchemaInfo].schemas for dep in ctx.attr.deps],
        ),
        tools = [ctx.executable._capnp_compatible],
        outputs = [report],
        env = {"HAWSER_SCHEMA_PATH": ":".join([schema_import_path(ctx, schema)] + depset(
            transitive = [dep[CapnpSchemaInfo].import_paths for dep in ctx.attr.deps],
        ).to_list())},
    )

    test = ctx.actions.declare_file(ctx.label.name + ".sh")
    ctx.actions.write(
        test,
        """#!/bin/sh
# Fails with what was found when the schema was built, if it was anything.
if cat '%s' && [ ! -s '%s' ]; then
  echo '%s can replace %s.'
  exit 0
fi
exit 1
""" % (report.short_path, report.short_path, schema.short_path, ctx.file.released.short_path),
        is_executable = True,
    )
    return [DefaultInfo(executable = test, runfiles = ctx.runfiles(files = [report]))]

capnp_compatible_test = rule(
    implementation = _capnp_compatible_test_impl,
    doc = "A test that passes if peers of a schema and of its released version understand each other.",
    test = True,
    attrs = {
        "schema": attr.label(
            mandatory = True,
            allow_single_file = [".capnp"],
            doc = "The schema as it is now.",
        ),
        "released": attr.label(
            mandatory = True,
            allow_single_file = [".capnp"],
            doc = "A copy of the schema as it was released.",
        ),
        "deps": attr.label_list(
            providers = [CapnpSchemaInfo],
            doc = "The capnp_rpc_library targets whose schemas are imported. A file beside `schema` that " +
                  "it imports counts, too: give the target of this package that has it in its srcs.",
        ),
        "released_deps": attr.label_list(
            providers = [CapnpSchemaInfo],
            doc = "The targets whose schemas `released` imports: released copies, as capnp_schema_files " +
                  "of capnp_rpc.bzl. Without it `deps`, so that both versions import the same.",
        ),
        "strip_import_prefix": attr.string(
            default = "/",
            doc = "As of capnp_rpc_library.",
        ),
        "_annotations": attr.label(
            default = "@hawser//codegen:annotations",
            providers = [CapnpSchemaInfo],
        ),
        "_capnp": attr.label(
            default = "@hawser//third_party:capnp_tool",
            allow_single_file = True,
            cfg = "exec",
        ),
        "_capnp_compatible": attr.label(
            default = "@hawser//codegen:capnp-compatible",
            executable = True,
            cfg = "exec",
        ),
        "_capnp_imports": attr.label(default = "@hawser//third_party:capnp_imports"),
    },
)
