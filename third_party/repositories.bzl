"""The repositories Hawser needs, all made from the distribution's packages; nothing is downloaded.

Hawser's own WORKSPACE and a user's WORKSPACE call the same macro:

    local_repository(name = "hawser", path = "...")
    load("@hawser//third_party:repositories.bzl", "hawser_repositories")
    hawser_repositories()

Only this file and WORKSPACE know of WORKSPACE rules, so a move to Bazel's modules touches no BUILD file.
"""

def _generated_repository_impl(ctx):
    for path, content in ctx.attr.files.items():
        ctx.file(path, content, executable = False)
    for label, path in ctx.attr.links.items():
        ctx.symlink(label, path)

_generated_repository = repository_rule(
    implementation = _generated_repository_impl,
    doc = "A repository of a few files that the macro below gives: no path of this checkout has to be known.",
    attrs = {
        "files": attr.string_dict(doc = "path -> content"),
        "links": attr.label_keyed_string_dict(doc = "file of Hawser -> path it gets"),
    },
)

# The parts of abseil that Hawser's sources and their users include. Their names are the same in all releases; the libraries
# that are behind them are not.
_ABSL_PARTS = [
    "any_invocable",
    "btree",
    "cord",
    "failure_signal_handler",
    "flags",
    "flags_parse",
    "flags_usage",
    "flat_hash_map",
    "flat_hash_set",
    "hash",
    "inlined_vector",
    "int128",
    "node_hash_map",
    "node_hash_set",
    "random_bit_gen_ref",
    "random_random",
    "span",
    "status",
    "statusor",
    "str_format",
    "strings",
    "symbolize",
    "synchronization",
    "time",
]

def _pkg_config_folder(ctx):
    """Where the distribution has the .pc files of abseil; None: nowhere. On Debian a folder named after the machine."""
    lib = ctx.path("/usr/lib")
    folders = [lib, ctx.path("/usr/lib64")] + (lib.readdir() if lib.exists else [])

    # Other machines' packages may be installed beside this one's (`dpkg --add-architecture`).
    own = ctx.execute(["uname", "-m"]).stdout.strip() + "-linux-gnu"
    for folder in [each for each in folders if each.basename == own] + folders:
        pkg_config = folder.get_child("pkgconfig")
        if pkg_config.get_child("absl_status.pc").exists:
            return pkg_config
    return None

def _absl_link_options(ctx, parts):
    """What `pkg-config --libs` says of the parts, each library before those that it needs; pkg-config is not needed."""
    folder = _pkg_config_folder(ctx)
    if folder == None:
        fail("Hawser looks for absl_status.pc, of the Debian package libabsl-dev, in /usr/lib/*/pkgconfig, and it is not there.")
    needs = {}
    libraries = {}
    unread = ["absl_" + part for part in parts]
    for _ in range(10000):  # Starlark has no `while`.
        if not unread:
            break
        name = unread.pop()
        if name in needs:
            continue
        file = folder.get_child(name + ".pc")
        if not file.exists:
            fail("%s/%s.pc is not there: the package libabsl-dev is not complete" % (folder, name))
        needs[name] = []
        libraries[name] = []
        for line in ctx.read(file).splitlines():
            if line.startswith("Requires"):
                # "Requires: absl_base = 20220623, absl_core_headers = 20220623"
                needs[name] += [each.strip().split(" ")[0] for each in line.split(":", 1)[1].split(",") if each.strip()]
            elif line.startswith("Libs"):
                libraries[name] += [word for word in line.split(":", 1)[1].split(" ") if word.startswith("-labsl_")]
        unread += needs[name]

    # Takes out what nothing that is left needs, again and again.
    users = {name: 0 for name in needs}
    for name in needs:
        for needed in needs[name]:
            users[needed] += 1
    free = sorted([name for name in users if users[name] == 0])
    options = []
    for _ in range(10000):
        if not free:
            break
        name = free.pop(0)
        options += [each for each in libraries[name] if each not in options]
        for needed in needs[name]:
            users[needed] -= 1
            if users[needed] == 0:
                free.append(needed)
    left = sorted([name for name in users if users[name] > 0])
    if left or free:
        fail("%s: these packages need each other in a circle, so their libraries have no order: %s" %
             (folder, ", ".join(left + free)))
    return options

def _system_repository_impl(ctx):
    missing = {}
    for path, package in ctx.attr.needs.items():
        if not ctx.path(path).exists:
            missing[package] = path
    if missing:
        fail("Hawser needs Debian packages that are not installed: " +
             ", ".join(["%s (for %s)" % item for item in missing.items()]) +
             ". Install them: sudo apt-get install " + " ".join(missing.keys()) +
             " (or run Hawser's bazelw in place of bazel, which does).")
    for path in ctx.attr.needs:
        ctx.symlink(path, path[len("/usr/"):])
    ctx.file("absl.bzl", "ABSL = %s\n" % repr(_absl_link_options(ctx, _ABSL_PARTS)), executable = False)
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

_system_repository = repository_rule(
    implementation = _system_repository_impl,
    doc = "What the distribution installed under /usr. Fails, naming the package, if a file is not there.",
    local = True,
    attrs = {
        "build_file": attr.label(mandatory = True),
        "needs": attr.string_dict(doc = "path below /usr -> Debian package"),
    },
)

# The folder in which bazelw stores the kernel's packages; the same line is in bazelw.
def _guest_kernel_folder(ctx):
    environ = ctx.os.environ
    return (environ.get("XDG_CACHE_HOME") or environ.get("HOME", "") + "/.cache") + "/hawser/guest_kernel"

def _guest_kernel_repository_impl(ctx):
    folder = _guest_kernel_folder(ctx)
    missing = {}
    for path, package in ctx.attr.needs.items():
        if not ctx.path(path).exists:
            missing["the Debian package %s (for %s)" % (package, path)] = None
    if not ctx.path(folder + "/packages").exists:
        missing["a kernel in " + folder] = None
    if missing:
        fail("Hawser's own tests in a guest need " + ", ".join(missing.keys()) + ". In Hawser's checkout " +
             "HAWSER_PACKAGES=develop ./bazelw gets that. A program that uses Hawser does not need it: build targets of " +
             "yours, or //examples/..., but not all of Hawser's.")
    files = ["packages", "image.deb", "headers.deb", "headers_common.deb", "kbuild.deb", "source.deb"]
    for name in files:
        ctx.symlink(folder + "/" + name, name)
    ctx.symlink("/bin/busybox", "busybox")
    ctx.file("BUILD.bazel", "exports_files(%s)" % repr(files + ["busybox"]), executable = False)

_guest_kernel_repository = repository_rule(
    implementation = _guest_kernel_repository_impl,
    doc = "The packages that third_party/guest_kernel/fetch.sh got, and busybox. Bazel looks at it only for a test in a " +
          "guest: for all else nothing of it has to be there.",
    environ = ["HOME", "XDG_CACHE_HOME"],
    local = True,
    attrs = {
        "needs": attr.string_dict(doc = "path -> Debian package"),
    },
)

def _absent(name):
    """Whether `name` is still free: a user's own choice of a repository goes before Hawser's."""
    return not native.existing_rule(name)

def _debian_bazel_rules():
    for name, path in {
        "bazel_skylib": "/usr/share/bazel/tools/skylib",
        "platforms": "/usr/share/bazel/tools/platforms",
        "rules_java": "/usr/share/bazel/rules/java",
        "rules_proto": "/usr/share/bazel/rules/proto",
    }.items():
        if _absent(name):
            native.local_repository(name = name, path = path)

    # Debian's bazel-rules-cc 0.0.4 is too new for its Bazel 4.2.3 (it loads use_cpp_toolchain, which 4.2.3
    # lacks). Other rules load only the native rules from it.
    if _absent("rules_cc"):
        _generated_repository(
            name = "rules_cc",
            files = {"BUILD": "", "cc/BUILD": "exports_files([\"defs.bzl\"])"},
            links = {"@hawser//third_party:native_cc_rules.bzl": "cc/defs.bzl"},
        )

    # `bazel test` resolves this label even without coverage.
    if _absent("remote_coverage_tools"):
        _generated_repository(
            name = "remote_coverage_tools",
            files = {"BUILD": """filegroup(name = "coverage_report_generator", visibility = ["//visibility:public"])"""},
        )

def hawser_repositories():
    """Declares every repository that Hawser's BUILD files name, unless the workspace has one of that name already."""
    _debian_bazel_rules()
    if _absent("hawser_system"):
        _system_repository(
            name = "hawser_system",
            build_file = "@hawser//third_party:system.BUILD",
            needs = {
                "/usr/bin/capnp": "capnproto",
                "/usr/bin/capnpc-c++": "capnproto",
                # Its header is in a folder named after the machine.
                "/usr/bin/dtrace": "systemtap-sdt-dev",
                "/usr/include/absl/base/options.h": "libabsl-dev",
                "/usr/include/capnp/c++.capnp": "libcapnp-dev",
                "/usr/include/capnp/schema.capnp": "libcapnp-dev",
                "/usr/include/gmock/gmock.h": "libgmock-dev",
                "/usr/include/gtest/gtest.h": "libgtest-dev",
                "/usr/include/infiniband/verbs.h": "libibverbs-dev",
                "/usr/include/openssl/ssl.h": "libssl-dev",
                "/usr/include/prometheus/text_serializer.h": "prometheus-cpp-dev",
                "/usr/include/rdma/rdma_cma.h": "librdmacm-dev",
            },
        )
    if _absent("hawser_guest_kernel"):
        _guest_kernel_repository(
            name = "hawser_guest_kernel",
            needs = {
                "/bin/busybox": "busybox-static",
                "/sbin/modprobe": "kmod",
                "/usr/bin/cpio": "cpio",
                "/usr/bin/ib_send_lat": "perftest",
                "/usr/bin/ibv_devinfo": "ibverbs-utils",
                "/usr/bin/make": "make",
                "/usr/bin/qemu-system-x86_64": "qemu-system-x86",
                "/usr/bin/rdma": "iproute2",
                "/usr/bin/rping": "rdmacm-utils",
                "/usr/bin/xz": "xz-utils",
            },
        )
