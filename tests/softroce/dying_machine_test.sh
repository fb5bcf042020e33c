#!/usr/bin/env bash
# Tests Hawser on two machines, when one of them loses power, is frozen, or has its link cut.
set -uo pipefail

program=$PWD/tests/rpc/network/dying_machine_test
failures=0
# check <what> <fault> <test of guest 0> <test of guest 1>
check() {
  if tests/softroce/pair.sh --wall=300 --timeout=240 --fault="$2" \
    -- "exec $program --gtest_filter=$3" "exec $program --gtest_filter=$4"; then
    echo "ok: $1"
  else
    failures=$((failures + 1))
    echo "FAILED: $1"
  fi
}

check 'a server that dies' \
  'await 1 calling; tell 0 stop; await 1 lost; tell 0 cont
   await 1 idle; tell 0 set_link link off; await 1 lost_idle; tell 0 set_link link on
   await 1 calling_much; tell 0 set_link link off; await 1 lost_much; tell 0 set_link link on
   await 1 calling_for_the_last_time; tell 0 quit' \
  DyingMachine.Serves 'DyingServerTest.*'
check 'a client that dies' 'await 1 calling; tell 0 quit' DyingMachine.Calls 'DyingClientTest.*'

((failures == 0)) || { echo "$failures failed"; exit 1; }
