#!/usr/bin/env bash
# Which lines of base/, transport/ and rpc/ do the fuzzers' corpora and the simulated seeds run? Prints a table, a source
# file a line: how many lines it has, and how many of them each ran.
#
#   tests/coverage.sh [option of bazel]...
#
# HAWSER_CORPORA  a folder with more inputs: in NAME/ those of the fuzzer NAME
# HAWSER_SEEDS    how many seeds of each simulated world, of 300 steps; 300 unless set
set -euo pipefail
cd "$(dirname "$0")/.."
bazel=${BAZEL:-./bazelw}
fuzzers=(handshake wire message tcp_greeting tcp_frame uri peer lane rpc_peer)
fuzzers=("${fuzzers[@]/%/_fuzz}")
worlds=(exchange_seeds rpc_seeds)
options=(--collect_code_coverage '--instrumentation_filter=^//(base|transport|rpc)[/:]' --platform_suffix=coverage "$@")

$bazel build "${options[@]}" "${fuzzers[@]/#///tests/fuzz:}" "${worlds[@]/#///tests/sim:}"
root=$($bazel info "${options[@]}" execution_root)
bin=$($bazel info "${options[@]}" bazel-bin)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run PART PROGRAM ARGUMENT...: the counts of PART go on.
run() {
  GCOV_PREFIX=$work/$1 "${@:2}" >"$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
}
for name in "${fuzzers[@]}"; do
  inputs=("tests/fuzz/corpus/$name")
  [[ ! -d ${HAWSER_CORPORA:-/nonexistent}/$name ]] || inputs+=("$HAWSER_CORPORA/$name")
  run fuzzers "$bin/tests/fuzz/$name" "${inputs[@]}"
done
for name in "${worlds[@]}"; do
  run seeds "$bin/tests/sim/$name" --seeds="${HAWSER_SEEDS:-300}" --steps=300
done

# Each source is compiled once, so that what is counted of it is in one file.
built=proc/self/cwd
gcov-tool-12 merge -o "$work/both" "$work/fuzzers" "$work/seeds" 2>"$work/log"
for part in fuzzers seeds both; do
  (cd "$work/$part/$built" && find . -name '*.gcda') | while read -r counts; do
    notes=${counts%.gcda}.gcno
    [[ -e $root/$notes ]] || continue  # Of another folder.
    cp "$root/$notes" "$work/$part/$built/$notes"
    (cd "$root" && gcov-12 --no-output "$work/$part/$built/$counts")
  done | awk -v part="$part" '
    /^File / { gsub(/[\x27]/, ""); file = $2; sub(/^\/proc\/self\/cwd\//, "", file) }
    /^Lines executed:/ && file ~ /^(base|transport|rpc)\/.*\.cc$/ {
      split($0, words, /[:% ]+/)
      print file, part, words[5], words[3]
    }
    /^Lines executed:/ { file = "" }'
done >"$work/table"
awk '
  { lines[$1] = $3; percent[$1, $2] = $4 }
  END {
    for (file in lines) {
      folder = file
      sub(/[^\/]*$/, "", folder)
      printf "1 %-44s %6d", file, lines[file]
      total[folder] += lines[file]
      for (i = 1; i <= 3; ++i) {
        part = i == 1 ? "fuzzers" : i == 2 ? "seeds" : "both"
        ran[folder, part] += lines[file] * percent[file, part] / 100
        printf " %7.1f%%", percent[file, part]
      }
      printf "\n"
    }
    for (name in total) {
      printf "2 %-44s %6d", name, total[name]
      for (i = 1; i <= 3; ++i) {
        part = i == 1 ? "fuzzers" : i == 2 ? "seeds" : "both"
        printf " %7.1f%%", 100 * ran[name, part] / total[name]
      }
      printf "\n"
    }
  }' "$work/table" | sort | sed -e '1i\# file                                       lines  fuzzers    seeds     both' -e 's/^[12] //'
