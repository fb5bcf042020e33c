#!/usr/bin/env bash
# Runs a test, or another program, under valgrind's memcheck: memcheck.sh PROGRAM ARGUMENT...
set -euo pipefail
cd "$TEST_SRCDIR/hawser"  # In a workspace that uses Hawser a test begins in another folder.
source tests/memcheck/options.sh

log=$TEST_TMPDIR/memcheck.log
status=0
"${memcheck[@]}" "$@" | tee "$log" || status=$?
if grep -qF '[  PASSED  ] 0 tests.' "$log"; then
  echo 'memcheck.sh: no test has that name' >&2
  exit 1
fi
exit "$status"
