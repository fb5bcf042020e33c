#!/usr/bin/env bash
# Compares what the plugin makes of the schemas in testdata/ with the files beside them, byte by byte:
#
#   testdata/kv.capnp          must give   testdata/kv.rpc.h.golden and testdata/kv.rpc.c++.golden
#   testdata/refused/x.capnp   must fail with the message in testdata/refused/x.expected, and write nothing
#   testdata/left_out/x.capnp  must give, where unsupported interfaces are left out, the files x.rpc.*.golden and the notes in
#                              x.expected; without that it is refused
#
#   bazel run //tests/codegen:update_golden    writes them anew, after a change that is meant; read the diff, then commit.
#
# Called by Bazel: golden.sh <capnp> <plugin> check|update
set -uo pipefail

readonly capnp=$1 plugin=$2 mode=$3
readonly testdata=tests/codegen/testdata
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

# What is and what should be: $1 is compared with, or becomes, file $2.
expect() {
  if [[ $mode == update ]]; then
    cp --no-preserve=mode "$1" "$BUILD_WORKSPACE_DIRECTORY/$2" || failed=1
  elif ! diff --unified --label "$2" --label 'generated now' "$([[ -e $2 ]] && echo "$2" || echo /dev/null)" "$1"; then
    failed=1
  fi
}

compile() {
  "$capnp" compile -I. -Icodegen "-o./$plugin:$work/out" "$1"
}

for schema in "$testdata"/*.capnp; do
  rm -rf "$work/out" && mkdir "$work/out"
  compile "$schema" || { printf 'FAILED: %s is refused\n' "$schema"; failed=1; continue; }
  for output in rpc.h rpc.c++; do
    expect "$work/out/${schema%capnp}$output" "${schema%capnp}$output.golden"
  done
done

for schema in "$testdata"/refused/*.capnp; do
  rm -rf "$work/out" && mkdir "$work/out"
  compile "$schema" >"$work/stdout" 2>"$work/stderr" && { printf 'FAILED: %s is not refused\n' "$schema"; failed=1; }
  grep -v 'plugin failed: exit code 1$' "$work/stderr" >"$work/messages"
  expect "$work/messages" "${schema%capnp}expected"
  written=$(find "$work/out" -type f)
  [[ -z $written ]] || { printf 'FAILED: %s is refused, but there is %s\n' "$schema" "$written"; failed=1; }
done

for schema in "$testdata"/left_out/*.capnp; do
  rm -rf "$work/out" && mkdir "$work/out"
  compile "$schema" 2>/dev/null && { printf 'FAILED: %s is not refused\n' "$schema"; failed=1; }
  HAWSER_UNSUPPORTED=leave_out compile "$schema" 2>"$work/stderr" ||
    { printf 'FAILED: %s is refused, and interfaces may be left out\n' "$schema"; failed=1; continue; }
  expect "$work/stderr" "${schema%capnp}expected"
  for output in rpc.h rpc.c++; do
    expect "$work/out/${schema%capnp}$output" "${schema%capnp}$output.golden"
  done
done

HAWSER_UNSUPPORTED=maybe compile "$testdata/kv.capnp" 2>"$work/stderr" && { echo 'FAILED: "maybe" is no choice'; failed=1; }
grep -q 'HAWSER_UNSUPPORTED is "maybe"; it can be refuse or leave_out' "$work/stderr" || { cat "$work/stderr"; failed=1; }

if ((failed)) && [[ $mode == check ]]; then
  printf '\nIf the new output is what it should be: bazel run //tests/codegen:update_golden\n'
fi
exit "$failed"
