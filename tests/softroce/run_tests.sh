#!/usr/bin/env bash
# Runs tests one after the other, in the guest or on a machine with a device:
#
#   run_tests.sh <folder> <seconds> <test>...
#
# A test with a name and an @ before it runs as on a NIC: nic/nic_behavior.cc has the names, and $HAWSER_TEST_NIC_LIBRARY is
# nic/preload.cc.
#
# For test number n, from 0, it writes n.log with the output, n.xml if the test writes GoogleTest's report,
# and at the end n.status with the exit status and the time in seconds. guest_test.sh reads these files.
set -u

folder=$1 seconds=$2
shift 2

# Sets `now`, in microseconds. In virtual time the guest's own clock skips waits. Its real-time clock is the host's,
# in seconds, and so are the limits and the times that are reported.
read_clock() {
  if [[ -z ${HAWSER_VIRTUAL_TIME:-} ]]; then
    now=${EPOCHREALTIME/./}
  else
    until read -r now </sys/class/rtc/rtc0/since_epoch; do :; done
    now+=000000
  fi
}

# In virtual time: sends timeout(1), process $1, the signal that its time is up.
watch() {
  local never
  exec {never}<> <(:)
  while kill -0 "$1"; do
    read -r -t 30 <&"$never"  # Of the guest's time: milliseconds while all of the guest waits.
    read_clock
    ((now < start + seconds * 1000000)) || kill -ALRM "$1"
  done
}

# Runs a command for at most $seconds.
limited() {
  if [[ -z ${HAWSER_VIRTUAL_TIME:-} ]]; then
    timeout --kill-after=5 "$seconds" "$@"
  else
    (
      timeout_pid=$BASHPID  # Not in the next line, because a background process has its own.
      watch "$timeout_pid" &>/dev/null &
      exec timeout --kill-after=5 0 "$@"
    )
  fi
}

unset TEST_PREMATURE_EXIT_FILE  # GoogleTest creates it, in a folder that the guest may not have.
n=0
for test in "$@"; do
  tmp=$(mktemp -d)
  with=()
  # AddressSanitizer checks that it is loaded first, which is not needed.
  if [[ $test =~ ^([a-z0-9_]+)@(.*) ]]; then
    nic=${BASH_REMATCH[1]} test=${BASH_REMATCH[2]} with=(env)
    [[ $nic != erdma ]] || with+=(-u HAWSER_RDMA_ADDRESS6)  # It has no IPv6.
    with+=("HAWSER_TEST_NIC=$nic" "LD_PRELOAD=$HAWSER_TEST_NIC_LIBRARY"
      "ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0")
  fi
  read_clock
  start=$now
  # The braces put the shell's report of a crash into the log, too.
  {
    TEST_TMPDIR=$tmp XML_OUTPUT_FILE=$folder/$n.xml limited "${with[@]}" "$test" </dev/null
  } >"$folder/$n.log" 2>&1
  status=$?
  read_clock
  micros=$((now - start))
  printf '%d %d.%03d\n' "$status" $((micros / 1000000)) $((micros / 1000 % 1000)) >"$folder/$n.partial"
  mv "$folder/$n.partial" "$folder/$n.status"
  rm -rf "$tmp"
  n=$((n + 1))
done
