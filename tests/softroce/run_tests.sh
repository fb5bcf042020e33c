#!/usr/bin/env bash
# Runs tests one after the other, in the guest or on a machine with a device:
#
#   run_tests.sh <folder> <seconds> <test>...
#
# For test number n, from 0, it writes n.log with the output, n.xml if the test writes GoogleTest's report,
# and at the end n.status with the exit status and the time in seconds. guest_test.sh reads these files.
set -u

folder=$1 seconds=$2
shift 2

# In virtual time the clock of a guest that waits for the host runs ahead, sometimes by minutes. So this first
# copies all files and links that the tests need into the guest's memory (a file that is changed, or only
# touched, is copied completely). A test's output stays there until the test has ended, and is lost if the
# guest dies.
hold() {
  local files=("$@" /bin/bash /bin/sh /usr/bin/timeout /sbin/tc /etc/ld.so.cache /lib64/ld-linux-* /etc/hosts /etc/*.conf
    /usr/lib/*/libibverbs.so.? /usr/lib/*/librdmacm.so.? /usr/lib/*/libibverbs/*.so /etc/libibverbs.d/*)
  local file
  for file in "$@"; do
    while [[ -L $file ]]; do file=$(readlink "$file") && files+=("$file"); done
  done
  for file in $(ldd "${files[@]}" 2>/dev/null | grep -o '/[^ :]*'); do files+=("$file"); done
  { printf '%s\n' /bin /lib /lib64 "${files[@]}" && readlink -f "${files[@]}"; } |
    sort -u | xargs touch --no-create --no-dereference
}

output=$folder
case ${HAWSER_VIRTUAL_TIME:-} in
  1)
    hold "$@"
    # Restarts, because the bash that runs this script is still read from the host.
    HAWSER_VIRTUAL_TIME=held exec "$0" "$folder" "$seconds" "$@"
    ;;
  held) output=$(mktemp -d) ;;
esac

# $HAWSER_TEST_PRELOAD: a library for the tests. AddressSanitizer checks that it is loaded first, which is not
# needed.
with=()
[[ -z ${HAWSER_TEST_PRELOAD:-} ]] ||
  with=(env "LD_PRELOAD=$HAWSER_TEST_PRELOAD" "ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0")

n=0
for test in "$@"; do
  tmp=$(mktemp -d)
  start=$EPOCHREALTIME
  # The braces put the shell's report of a crash into the log, too.
  {
    TEST_TMPDIR=$tmp XML_OUTPUT_FILE=$output/$n.xml timeout --kill-after=5 "$seconds" "${with[@]}" "$test" </dev/null
  } >"$output/$n.log" 2>&1
  status=$?
  micros=$((${EPOCHREALTIME/./} - ${start/./}))
  [[ $output == "$folder" ]] || mv "$output/$n".* "$folder"
  printf '%d %d.%03d\n' "$status" $((micros / 1000000)) $((micros / 1000 % 1000)) >"$folder/$n.partial"
  mv "$folder/$n.partial" "$folder/$n.status"
  rm -rf "$tmp"
  n=$((n + 1))
done
