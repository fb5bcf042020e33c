#!/usr/bin/env bash
# That memcheck, as the tests here run it, sees what it is for: mistakes that are made on purpose (careless_test.cc).
#
# Fails in a build without --config=memcheck, in which memcheck knows nothing of the memory of pools.
set -uo pipefail
here=$TEST_SRCDIR/hawser/tests/memcheck
failures=0

# expect STATUS TEXT NAME: the test of that name ends so, and memcheck says so.
expect() {
  local status=0 log=$TEST_TMPDIR/log
  "$here/memcheck.sh" tests/memcheck/careless_test --gtest_filter="CarelessTest.$3" >"$log" 2>&1 || status=$?
  if [[ $status != "$1" ]] || ! grep -q "$2" "$log"; then
    printf 'CarelessTest.%s: exit status %s, not %s, or no "%s" in:\n' "$3" "$status" "$1" "$2"
    cat "$log"
    failures=$((failures + 1))
  fi
}
expect 0 'PASSED' SendsWhatItWrote
expect 99 'Uninitialised byte(s) found during client check request' SendsABufferThatItDidNotFill
expect 99 'Uninitialised byte(s) found during client check request' GrantsABufferThatItDidNotFill
expect 99 'Uninitialised byte(s) found during client check request' ConnectsWithPrivateDataThatItDidNotWrite
expect 99 'Invalid read of size 1' ReadsARequestThatHasEnded
expect 99 'Invalid read of size 1' ReadsAReplyThatHasEnded
((failures == 0))
