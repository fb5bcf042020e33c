#!/usr/bin/env bash
# How near to verbs Hawser has to come: a call of 64 bytes, both sides asleep, at most 1.25 times twice ib_send_lat; puts and
# gets of 1 MiB at least 0.9 times ib_read_bw. In virtual time, where a ratio is one of instructions and repeats to a percent
# whatever else the machine does. No program can spin in virtual time (README.md). Optimized, however the rest is compiled.
set -euo pipefail

[[ ${HAWSER_VIRTUAL_TIME:-} ]] || { echo 'near_verbs_test.sh: only in a guest with virtual time does this repeat' && exit 1; }
table=$("$(dirname "$0")/beside_perftest.sh" --rounds=1 --calls=300 --megabytes=12 --sizes=1048576)
echo "$table"

# within <row> <awk's condition on ratio>
within() {
  local ratio
  ratio=$(sed -nE "s|^$1 +[0-9.]+ +[0-9.]+ +([0-9.]+) .*|\1|p" <<<"$table")
  awk -v ratio="${ratio:-none}" "BEGIN { exit !(ratio > 0 && ratio $2) }" || { echo "$1: ratio '$ratio', not $2" && exit 1; }
}
within 'echo 64 B, sleeping, us' '<= 1.25'
within 'put 1024 KiB, MiB/s' '>= 0.9'
within 'get 1024 KiB, MiB/s' '>= 0.9'
