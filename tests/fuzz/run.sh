#!/usr/bin/env bash
# Runs one fuzzer: run.sh PROGRAM CORPUS replay|fuzz, as the tests of this folder do.
#
# HAWSER_FUZZ_SECONDS  how long to fuzz; 60 unless set
set -euo pipefail

program=$1 corpus=$2 mode=$3
name=${program##*/}
[[ -d $corpus ]] || { echo "run.sh: no corpus in $corpus" >&2; exit 1; }
[[ $mode == fuzz ]] || exec "$program" "$corpus" --mutate_ms=1000

# What is found while fuzzing goes into a folder of its own, in front of the corpus that it starts from.
new=$(mktemp -d "${TEST_TMPDIR:-/tmp}/$name.XXXXXX")
findings=$(mktemp -d "${TEST_TMPDIR:-/tmp}/$name.findings.XXXXXX")
trap 'rm -rf "$new" "$findings"' EXIT
status=0
# Long inputs from the beginning: the fuzzers of whole connections run some dozens a second, and would not come to them.
"$program" -max_total_time="${HAWSER_FUZZ_SECONDS:-60}" -len_control=0 -max_len=4096 -timeout=30 -rss_limit_mb=2048 \
  -malloc_limit_mb=512 -print_final_stats=1 -artifact_prefix="$findings/" "$new" "$corpus" || status=$?
for finding in "$findings"/*; do
  [[ -e $finding ]] || continue
  printf '\n== %s found something. Again, from the top of the tree:\n\n' "$name"
  printf "  base64 -d >/tmp/%s <<<'%s'\n" "${finding##*/}" "$(base64 -w0 "$finding")"
  printf '  ./bazelw run --config=fuzz //tests/fuzz:%s -- /tmp/%s\n\n' "$name" "${finding##*/}"
done
exit "$status"
