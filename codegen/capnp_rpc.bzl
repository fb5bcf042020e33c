"""Cap'n Proto schemas as C++ libraries, with the Hawser stubs and services of their interfaces.

    load("@hawser//codegen:capnp_rpc.bzl", "capnp_rpc_library")

    capnp_rpc_library(
        name = "kv_rpc",
        srcs = ["kv.capnp"],
        deps = ["//acme/base:base_rpc"],  # Those whose schemas kv.capnp imports.
    )

A C++ target that has ":kv_rpc" in its deps includes "pkg/kv.capnp.h" (what capnpc-c++ generates) and "pkg/kv.rpc.h"
(KeyValueStub and KeyValueService), by the path from the workspace. A schema imports others by a relative path, or as
"/pkg/other.capnp" from the workspace; "/capnp/..." and "/hawser/annotations.capnp" are always there.

A schema that was not written for Hawser may have interfaces that Hawser cannot serve, such as those that pass capabilities:

    capnp_rpc_library(
        name = "device_rpc",
        srcs = ["device.capnp"],
        unsupported = "leave_out",  # Those have no stub and no service; the build and device.rpc.h say which, and why.
    )

    capnp_library(
        name = "device_capnp",
        srcs = ["device.capnp"],  # "pkg/device.capnp.h" only.
    )
"""

load("//third_party:capnp.bzl", "CAPNP_IMPORT_PATH")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

CapnpSchemaInfo = provider(
    doc = "Schemas that others can import.",
    fields = {
        "schemas": "depset of File: the schemas, and all that they import.",
        "import_paths": "depset of string: folders that an import of \"/pkg/foo.capnp\" is looked for in.",
    },
)

def _join(*parts):
    return "/".join([part for part in parts if part]) or "."

def _below(file, folder):
    """The path of a file from a folder that it has to be in."""
    if folder == ".":
        return file.path
    if not file.path.startswith(folder + "/"):
        fail("%s is not below %s, where srcs and strip_import_prefix say that it is" % (file.path, folder))
    return file.path[len(folder) + 1:]

def _import_prefix(ctx):
    """The folder below the workspace that import and include paths start from; "" is the workspace."""
    prefix = ctx.attr.strip_import_prefix
    if prefix.startswith("/"):
        return prefix[1:]
    return _join(ctx.label.package, prefix) if ctx.label.package or prefix else ""

def schema_import_path(ctx, file):
    """The folder that the import path of a schema of this target starts from."""
    return _join(file.root.path, ctx.label.workspace_root, _import_prefix(ctx))

def _schema_info(ctx, deps):
    infos = [dep[CapnpSchemaInfo] for dep in deps]
    return CapnpSchemaInfo(
        schemas = depset(ctx.files.srcs, transitive = [info.schemas for info in infos]),
        import_paths = depset(
            [schema_import_path(ctx, file) for file in ctx.files.srcs],
            transitive = [info.import_paths for info in infos],
        ),
    )

def _declare_outputs(ctx, suffix):
    """For each schema of the target the file `suffix` beside where it would lie in the output tree."""
    files = []
    for file in ctx.files.srcs:
        if file.owner.workspace_name != ctx.label.workspace_name or file.owner.package != ctx.label.package:
            fail("%s is in another package: give it a capnp_rpc_library there" % file.owner)
        _below(file, schema_import_path(ctx, file))
        in_package = _below(file, _join(file.root.path, ctx.label.workspace_root, ctx.label.package))
        files.append(ctx.actions.declare_file(in_package[:-len(".capnp")] + suffix))
    return files

def _generate(ctx, info, plugins, suffixes):
    """Runs the schema compiler with the plugins. Returns the headers, the sources and the folder to include from.

    Args:
      ctx: of the rule.
      info: the CapnpSchemaInfo of the target.
      plugins: the plugins, files.
      suffixes: of what they make for each schema: ".rpc" for foo.rpc.h and foo.rpc.c++.
    """
    headers = []
    sources = []
    for suffix in suffixes:
        headers += _declare_outputs(ctx, suffix + ".h")
        sources += _declare_outputs(ctx, suffix + ".c++")
    output = _join(ctx.bin_dir.path, ctx.label.workspace_root, _import_prefix(ctx))
    import_paths = info.import_paths.to_list()

    args = ctx.actions.args()
    args.add("compile")
    args.add_all(import_paths + [CAPNP_IMPORT_PATH], format_each = "-I%s", uniquify = True)
    own_paths = {schema_import_path(ctx, file): None for file in ctx.files.srcs}
    args.add_all([path for path in own_paths if path != "."], format_each = "--src-prefix=%s")
    for plugin in plugins:
        # A path with a slash is the plugin itself; without one it would be looked for in $PATH.
        args.add("-o%s:%s" % (plugin.path, output))
    args.add_all(ctx.files.srcs)

    ctx.actions.run(
        mnemonic = "CapnpRpc",
        progress_message = "Compiling the Cap'n Proto schemas of %s" % ctx.label,
        executable = ctx.file._capnp,
        arguments = [args],
        inputs = depset(ctx.files._capnp_imports, transitive = [info.schemas]),
        tools = plugins,
        outputs = headers + sources,
        env = {
            "HAWSER_SCHEMA_PATH": ":".join(own_paths.keys()),  # For the line numbers of its messages.
            "HAWSER_UNSUPPORTED": getattr(ctx.attr, "unsupported", ""),
        },
    )
    return headers, sources, output

def _capnp_schema_files_impl(ctx):
    return [
        _schema_info(ctx, []),
        DefaultInfo(files = depset(ctx.files.srcs), runfiles = ctx.runfiles(files = ctx.files.srcs)),
    ]

def _cc_library(ctx, plugins, suffixes):
    """The providers of a library of what the plugins make."""
    info = _schema_info(ctx, ctx.attr.deps + [ctx.attr._annotations])
    headers, sources, include = _generate(ctx, info, plugins, suffixes)

    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    cc_infos = [dep[CcInfo] for dep in ctx.attr.deps + ctx.attr.cc_deps if CcInfo in dep]
    compilation_context, objects = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = toolchain,
        srcs = sources,
        public_hdrs = headers,
        includes = [include],  # capnpc-c++ makes #include <pkg/foo.capnp.h> of import "/pkg/foo.capnp".
        compilation_contexts = [dep.compilation_context for dep in cc_infos],
    )
    linking_context, linked = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name,
        actions = ctx.actions,
        feature_configuration = features,
        cc_toolchain = toolchain,
        compilation_outputs = objects,
        linking_contexts = [dep.linking_context for dep in cc_infos],
    )
    library = linked.library_to_link
    libraries = [file for file in [
        library.static_library or library.pic_static_library,
        library.dynamic_library,
    ] if file]
    return [
        info,
        CcInfo(compilation_context = compilation_context, linking_context = linking_context),
        DefaultInfo(files = depset(libraries)),
        OutputGroupInfo(generated = depset(headers + sources)),
    ]

def _capnp_library_impl(ctx):
    return _cc_library(ctx, [ctx.file._capnpc_cxx], [".capnp"])

def _capnp_rpc_library_impl(ctx):
    return _cc_library(ctx, [ctx.file._capnpc_cxx, ctx.executable._capnpc_hawser], [".capnp", ".rpc"])

_SCHEMA_ATTRS = {
    "srcs": attr.label_list(
        mandatory = True,
        allow_files = [".capnp"],
        doc = "Schemas of this package. They may import one another.",
    ),
    "strip_import_prefix": attr.string(
        default = "/",
        doc = "The folder that import and include paths start from: from the workspace if it begins with a slash, " +
              "else from the package.",
    ),
}

capnp_schema_files = rule(
    implementation = _capnp_schema_files_impl,
    doc = "Schemas that others import and that no code is generated from, such as annotations.",
    attrs = _SCHEMA_ATTRS,
    provides = [CapnpSchemaInfo],
)

_CC_ATTRS = dict(
    _SCHEMA_ATTRS,
    deps = attr.label_list(
        providers = [CapnpSchemaInfo],
        doc = "The capnp_rpc_library and capnp_library targets whose schemas are imported.",
    ),
    _annotations = attr.label(
        default = "@hawser//codegen:annotations",
        providers = [CapnpSchemaInfo],
    ),
    _capnp = attr.label(default = "@hawser//third_party:capnp_tool", allow_single_file = True, cfg = "exec"),
    _capnpc_cxx = attr.label(default = "@hawser//third_party:capnpc_cxx", allow_single_file = True, cfg = "exec"),
    _capnp_imports = attr.label(default = "@hawser//third_party:capnp_imports"),
    _cc_toolchain = attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
)

capnp_library = rule(
    implementation = _capnp_library_impl,
    doc = "A C++ library of what capnpc-c++ makes of Cap'n Proto schemas: their structs, without stubs and services, whatever " +
          "their interfaces are. A schema of a capnp_rpc_library may import them, but not extend their interfaces.",
    attrs = dict(
        _CC_ATTRS,
        cc_deps = attr.label_list(
            default = ["@hawser//third_party:capnp_rpc"],
            providers = [CcInfo],
            doc = "What the generated code includes.",
        ),
    ),
    fragments = ["cpp"],
    provides = [CapnpSchemaInfo, CcInfo],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

capnp_rpc_library = rule(
    implementation = _capnp_rpc_library_impl,
    doc = "A C++ library made from Cap'n Proto schemas, with a stub and a service for each interface in them.",
    attrs = dict(
        _CC_ATTRS,
        unsupported = attr.string(
            default = "refuse",
            values = ["refuse", "leave_out"],
            doc = "What becomes of interfaces that Hawser cannot serve: the target is refused, or they, and those that extend " +
                  "them, are left out. Names that do not compile in C++ are refused all the same.",
        ),
        _capnpc_hawser = attr.label(default = "@hawser//codegen:capnpc-hawser", executable = True, cfg = "exec"),
        cc_deps = attr.label_list(
            default = ["@hawser//rpc", "@hawser//third_party:capnp_rpc"],
            providers = [CcInfo],
            doc = "What the generated code includes. Hawser's own services name the parts of //rpc that it needs, since //rpc " +
                  "has these services.",
        ),
    ),
    fragments = ["cpp"],
    provides = [CapnpSchemaInfo, CcInfo],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
