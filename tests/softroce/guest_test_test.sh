#!/usr/bin/env bash
# A fault in a guest is reported as a failure, and the results of the other tests are kept.
set -uo pipefail

here=tests/softroce
tmp=$TEST_TMPDIR
failures=0

# program <name> <body>
program() {
  printf '#!/bin/bash\n%s\n' "$2" >"$tmp/$1"
  chmod +x "$tmp/$1"
}

# run <arguments of guest_test.sh>: sets $status and $output.
run() {
  output=$(XML_OUTPUT_FILE=$tmp/test.xml "$here/guest_test.sh" "$@" 2>&1)
  status=$?
  printf '%s\n\n' "$output"
}

check() {
  local what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    failures=$((failures + 1))
    echo "FAILED: $what"
  fi
}
is() { [[ $1 == "$2" ]]; }
has() { [[ $1 == *"$2"* ]]; }
lacks() { [[ $1 != *"$2"* ]]; }

program passes 'echo quiet'
program says_why 'echo "because of <this & that>"; exit 7'
program crashes 'kill -SEGV $$'
program is_killed 'kill -KILL $$'
program hangs 'echo waiting; trap "" TERM; while :; do read -r -t 1000 <> <(:); done'
program panics 'echo "last words"; echo c >/proc/sysrq-trigger'

# In virtual time the clock jumps whenever the guest waits, also for the host. So it has no files there, and its limits are
# of the host's time.
program waits_ten_minutes 'read -r -t 600 <> <(:); ((SECONDS >= 600))'
program is_alone "[[ ! -e $tmp/panics && \$(</proc/1/mounts) != *9p* ]]"
run --setup=none --virtual_time --test_seconds=5 -- \
  "$tmp"/{passes,waits_ten_minutes,is_alone,says_why,crashes,is_killed,hangs,passes}
check 'in virtual time ten minutes pass at once' grep -qE '^PASSED .*/waits_ten_minutes$' <<<"$output"
check 'without access to the host' grep -qE '^PASSED .*/is_alone$' <<<"$output"
check 'a failed test fails all' is "$status" 1
check 'an exit status is told' has "$output" "$tmp/says_why: exit status 7"
check 'with the output' has "$output" 'because of <this & that>'
check 'a crash is told' has "$output" "$tmp/crashes: SIGSEGV"
check 'a SIGKILL is no hang' has "$output" "$tmp/is_killed: SIGKILL"
check 'a hang is told' has "$output" "$tmp/hangs: still running after 5 s"
check 'tests before and after have passed' is "$(grep -cE '^PASSED .*/passes$' <<<"$output")" 2
check 'and nothing of theirs is printed' lacks "$output" quiet
check 'the XML counts failures' is "$(grep -c '<failure>' "$tmp/test.xml")" 4
check 'and says why' has "$(<"$tmp/test.xml")" 'because of &lt;this &amp; that&gt;'

program is_on_mlx5 '[[ $HAWSER_TEST_NIC == mlx5 && $LD_PRELOAD == */passes ]]'
program is_on_none '[[ -z ${HAWSER_TEST_NIC:-}${LD_PRELOAD:-} ]]'
run --setup=none --nics=passes -- "mlx5@$tmp/is_on_mlx5" "$tmp"/{is_on_none,passes,panics,passes}
check 'a test as on a NIC has its name' grep -qE '^PASSED .* mlx5@.*/is_on_mlx5$' <<<"$output"
check 'and others have not' grep -qE '^PASSED .*/is_on_none$' <<<"$output"
check 'a panic fails all' is "$status" 1
check 'the panic is told' has "$output" 'Kernel panic - not syncing: sysrq triggered crash'
check 'the test it was in is told' has "$output" "$tmp/panics: the guest ended while this test ran"
check 'with its output' has "$output" 'last words'
check 'what had passed has passed' is "$(grep -cE '^PASSED .*/passes$' <<<"$output")" 1
check 'what was not run has failed' has "$output" "$tmp/passes: not run, because the guest ended"

run --setup=none --wall=10 -- "$tmp/hangs"
check 'a guest that does not end in time is ended' is "$status" 1
check 'and told' has "$output" 'the guest was still running after 10 s'

# The first guest stays in its reset, as one that hangs before its first process.
program qemu-system-x86_64 "[[ -e $tmp/begun ]] || { touch $tmp/begun; set -- -S \"\$@\"; }; exec $(type -P qemu-system-x86_64) \"\$@\""
PATH=$tmp:$PATH run --setup=none --boot=3 -- "$tmp"/{passes,says_why}
check 'a guest that does not start its command is started again' grep -qE '^PASSED .*/passes$' <<<"$output"
check 'which runs each test' has "$output" "$tmp/says_why: exit status 7"
check 'and it is told' has "$output" 'the guest did not start its command within 3 s, and is started again'
check 'with where its processors were' has "$output" 'IP=0000fff0'
rm "$tmp/begun"

run --setup=none --boot=1 --wall=6 --qemu=-S -- "$tmp/passes"
check 'one that never does ends in time' is "$status" 1
check 'and is told' has "$output" 'the guest was still running after 6 s'

run --setup=absent -- "$tmp/passes"
check 'a guest that cannot be set up fails all' is "$status" 1
check 'and says why' has "$output" "no setup 'absent'"

HAWSER_RDMA_DEVICE=absent0 run -- "$tmp/passes"
check 'a device of this machine that is not there fails all' is "$status" 1
HAWSER_RDMA_DEVICE=any0 HAWSER_RDMA_ADDRESS=10.0.0.1 run -- "$tmp"/{passes,says_why}
check 'on this machine, a failed test fails all' is "$status" 1
check 'and is told' has "$output" "$tmp/says_why: exit status 7"
HAWSER_RDMA_DEVICE=any0 HAWSER_RDMA_ADDRESS=10.0.0.1 run -- "mlx5@$tmp/is_on_none" "hns@$tmp/is_on_none" "$tmp/passes"
check 'there, a test as on NICs runs once, as it is' is "$(grep -c ^PASSED <<<"$output") $status" '2 0'

((failures == 0)) || { echo "$failures failed"; exit 1; }
