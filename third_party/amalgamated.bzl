"""Several sources of a library compiled as one, as SQLite is.

Of the 1.04 s that a file of the library takes, gcc spends 0.29 s before it reads the first line and 0.45 s in headers that the
files of one library share; 0.3 s are the code. The compiler also inlines from one file of an amalgamation into another.

An amalgamation has the text of its files, one after the other, and `#line` before each, so that messages, debuggers and
coverage name the files that people edit. Bazel could also be given a file that includes them, but then everything that
depends on the library would have them as inputs, and be compiled again when one of them changes.

Each file must also compile alone: `--define=amalgamated=no` compiles all of them so, as does clangd
(//tools:compile_commands). `.ci/run` does not, so do it after a change of includes. And a name in an anonymous namespace is
used once in a library, and a macro that a file defines ends with it.
"""

SeparateInfo = provider(
    doc = "What an amalgamation is made of: for what looks at the `srcs` of libraries.",
    fields = {"files": "The sources, in their order."},
)

def separate(source):
    """The files that people edit: of a target that is among the `srcs` of a library."""
    return source[SeparateInfo].files if SeparateInfo in source else source.files.to_list()

def _amalgamated_impl(ctx):
    sources = ctx.files.srcs
    if ctx.var.get("amalgamated") == "no":
        return [DefaultInfo(files = depset(sources)), SeparateInfo(files = sources)]
    count = (len(sources) + ctx.attr.files_max - 1) // ctx.attr.files_max
    made = []
    for i in range(count):
        part = sources[i * len(sources) // count:(i + 1) * len(sources) // count]
        file = ctx.actions.declare_file("_amalgamated/%s_%d.cc" % (ctx.attr.library, i + 1))
        made.append(file)
        ctx.actions.run_shell(
            mnemonic = "Amalgamate",
            command = 'out=$1; shift; for file; do printf \'#line 1 "%s"\\n\' "$file"; cat "$file"; done >"$out"',
            arguments = [file.path] + [source.path for source in part],
            inputs = part,
            outputs = [file],
            execution_requirements = {"no-sandbox": "1"},  # It reads what it is given.
        )
    return [DefaultInfo(files = depset(made)), SeparateInfo(files = sources)]

amalgamated = rule(
    implementation = _amalgamated_impl,
    doc = "The amalgamations of `srcs`, each of `files_max` neighbours at most, as many in one as in another.",
    attrs = {
        "files_max": attr.int(mandatory = True),
        "library": attr.string(mandatory = True),
        "srcs": attr.label_list(allow_files = [".cc"], mandatory = True),
    },
    provides = [SeparateInfo],
)
