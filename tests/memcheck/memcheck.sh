#!/usr/bin/env bash
# Runs a program under valgrind's memcheck: memcheck.sh PROGRAM ARGUMENT... Exit status 99: memcheck has found something.
set -euo pipefail
cd "$TEST_SRCDIR/hawser"  # In a workspace that uses Hawser a test begins in another folder.
command -v valgrind >/dev/null || { echo 'there is no valgrind: install the package valgrind' >&2; exit 1; }
log=$TEST_TMPDIR/memcheck.log
# Threads take turns in the order in which they ask; without that, one that waits for another may starve it.
status=0
valgrind --quiet --error-exitcode=99 --fair-sched=yes --num-callers=40 --suppressions=tests/memcheck/explained.supp "$@" |
  tee "$log" || status=$?
if grep -qF '[  PASSED  ] 0 tests.' "$log"; then
  echo 'memcheck.sh: no test has that name' >&2
  exit 1
fi
exit "$status"
