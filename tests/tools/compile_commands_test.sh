#!/usr/bin/env bash
# compile_commands with a fake bazel, and its commands with the clang that reads them.
set -euo pipefail

program=$PWD/tools/compile_commands
tmp=$(mktemp -d "${TEST_TMPDIR:-/tmp}/compile_commands.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
failures=0

check() {
  local what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    failures=$((failures + 1))
    printf 'FAILED: %s\n  exit status: %s\n  output: %s\n' "$what" "$status" "$output"
  fi
}
is() { [[ $1 == "$2" ]] || { printf 'not the same:\n  %s\n  %s\n' "$1" "$2"; false; }; }
has() { [[ $1 == *"$2"* ]]; }

# A workspace that uses a library from another, which Bazel has a link to, and a header that a rule makes.
workspace=$tmp/workspace
library=$tmp/checkout
base=$tmp/base
root=$base/execroot/workspace
generated=bazel-out/k8-fastbuild/bin
mkdir -p "$workspace/app" "$library/lib" "$base/external" "$root/$generated/app" "$tmp/bin"
ln -s "$library" "$base/external/library"
echo '#pragma once' >"$library/lib/lib.h"
echo '#include "lib/lib.h"' >"$library/lib/lib.cc"
echo 'inline constexpr int made = 1;' >"$root/$generated/app/schema.capnp.h"
echo '#include "app/schema.capnp.h"' >"$root/$generated/app/schema.capnp.c++"
cat >"$workspace/app/app.cc" <<'END'
#include <string>
#include "app/schema.capnp.h"
#include "lib/lib.h"
int Answer(std::string text) { return made + static_cast<int>(text.size()); }
END

# action <folder of the output> <source>: as aquery prints one, with what gcc 12 alone knows, an error of
# its warnings and compiled headers.
action() {
  cat <<END
{"mnemonic": "CppCompile", "arguments": ["/usr/bin/gcc-12", "-std=c++20", "-Wall", "-Werror", "-Wno-error=restrict",
  "-MD", "-MF", "$1/x.d", "-frandom-seed=$1/x.o", "-iquote", ".", "-iquote", "$generated",
  "-Iexternal/library", "-I$generated", "-isystem", "external/library", "-fno-canonical-system-headers",
  "-D__DATE__=\"redacted\"", "-Wno-builtin-macro-redefined", "-Winvalid-pch", "-fpch-deps",
  "-include$1/_precompiled/gone.h", "-include-pch", "$1/_precompiled/gone.h.gch", "-c", "$2", "-o", "$1/x.o"]}
END
}
cat >"$tmp/aquery" <<END
{"actions": [
$(action "$generated" app/app.cc),
$(action "$generated" external/library/lib/lib.cc),
$(action "$generated" "$generated/app/schema.capnp.c++"),
$(action bazel-out/host/bin app/app.cc),
$(action bazel-out/host/bin bazel-out/host/bin/app/schema.capnp.c++),
{"mnemonic": "CppCompile", "arguments": ["/usr/bin/gcc-12", "--version"]}
]}
END
cat >"$tmp/bin/bazel" <<END
#!/usr/bin/env bash
echo "\$*" >>"$tmp/calls"
case \$1 in
  info) printf 'execution_root: %s\noutput_base: %s\n' "$root" "$base" ;;
  aquery) cat "$tmp/aquery"; exit \$(<"$tmp/aquery_status") ;;
  build) exit \$(<"$tmp/build_status") ;;
esac
END
chmod +x "$tmp/bin/bazel"

# run <status of aquery> <status of build> <args>: leaves $status and $output.
run() {
  echo "$1" >"$tmp/aquery_status"
  echo "$2" >"$tmp/build_status"
  shift 2
  rm -f "$workspace/compile_commands.json" "$tmp/calls"
  status=0
  output=$(BUILD_WORKSPACE_DIRECTORY=$workspace PATH=$tmp/bin:$PATH "$program" "$@" 2>&1) || status=$?
}

# entries <expression>: what Python makes of it for each entry e.
entries() {
  /usr/bin/python3 -c "import json, os, subprocess, sys
for e in json.load(open('$workspace/compile_commands.json')): print($1)"
}

run 0 0
check 'it succeeds' is "$status" 0
check 'each source is named once, by the path under which it is edited' is "$(entries "e['file']")" \
  "$root/$generated/app/schema.capnp.c++
$library/lib/lib.cc
$workspace/app/app.cc"
check "the targets' own commands go before those for tools of the build" \
  is "$(entries "'bazel-out/host' in str(e)" | sort -u)" False
check 'each command can be run by clang as it is' is "$(
  entries "subprocess.run(['clang-14', '-fsyntax-only', '-Werror'] + e['arguments'][1:], cwd=e['directory']).returncode" |
    sort -u)" 0
check 'the headers that rules make are made' has "$(<"$tmp/calls")" 'build --keep_going'
check 'each file of a library is compiled alone' is "$(grep -c -e '--define=amalgamated=no' "$tmp/calls")" 2
check 'for all targets, if none is named' has "$(<"$tmp/calls")" 'deps(//...)'

run 0 0 //app:one //app:two --config=asan
check 'targets and options are passed on' is "$(grep -c -e '--config=asan' "$tmp/calls")" 2
check 'all of them' has "$(<"$tmp/calls")" 'deps(//app:one + //app:two)'

run 1 1
check 'what cannot be analysed does not keep the rest from being written' is "$status-$(entries 1 | wc -l)" 0-3
check 'but is told' has "$output" 'bazel aquery failed in part'

run 2 0
check "what Bazel refuses ends it with Bazel's status" is "$status" 2
check 'and nothing is written' is "$(ls "$workspace")" app

status=0
output=$(env -u BUILD_WORKSPACE_DIRECTORY "$program" 2>&1) || status=$?
check 'started without Bazel it says how to start it' has "$output" 'bazel run @hawser//tools:compile_commands'

((failures == 0)) || { echo "$failures failed"; exit 1; }
