#!/usr/bin/env bash
# Runs tests one after the other, in the guest or on a machine with a device:
#
#   run_tests.sh <folder> <seconds> <test>...
#
# For the n-th test, from 0, the folder gets n.log with its output, n.xml if it writes GoogleTest's report, and at its end
# n.status with its exit status and the seconds it took. guest_test.sh reads them.
set -u

folder=$1 seconds=$2
shift 2

# In virtual time, a guest that waits for the host has nothing to do, and its clock runs ahead by seconds. So the test's
# files are brought into the guest's memory before the test (a changed file is copied there whole), its output stays there
# until the test is over, and an output is lost if the guest dies.
output=$folder
hold() {
  local verbs=(/usr/lib/*/libibverbs.so.? /usr/lib/*/librdmacm.so.? /usr/lib/*/libibverbs/*.so)
  {
    readlink -f "$1" /bin/bash /etc/ld.so.cache "${verbs[@]}" /etc/libibverbs.d/* /etc/hosts /etc/*.conf
    ldd "$1" "${verbs[@]}" 2>/dev/null | grep -o '/[^ :]*' | xargs readlink -f
  } | sort -u | xargs touch -c
}
[[ -z ${HAWSER_VIRTUAL_TIME:-} ]] || output=$(mktemp -d)

n=0
for test in "$@"; do
  tmp=$(mktemp -d)
  [[ -z ${HAWSER_VIRTUAL_TIME:-} ]] || hold "$test"
  start=$EPOCHREALTIME
  # Braces: what the shell says of a crash goes into the log too.
  {
    TEST_TMPDIR=$tmp XML_OUTPUT_FILE=$output/$n.xml timeout --kill-after=5 "$seconds" "$test" </dev/null
  } >"$output/$n.log" 2>&1
  status=$?
  micros=$((${EPOCHREALTIME/./} - ${start/./}))
  [[ $output == "$folder" ]] || mv "$output/$n".* "$folder"
  printf '%d %d.%03d\n' "$status" $((micros / 1000000)) $((micros / 1000 % 1000)) >"$folder/$n.partial"
  mv "$folder/$n.partial" "$folder/$n.status"
  rm -rf "$tmp"
  n=$((n + 1))
done
