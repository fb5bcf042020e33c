#!/usr/bin/env bash
# Runs the seeds of both worlds, one process each, until one breaks a rule or this is interrupted.
#
#   soak.sh <exchange_seeds> <rpc_seeds> [flag of both]...
#
# Each run starts at seeds that no test has run, and at other seeds than the last run. --first=N starts at N.
set -uo pipefail
programs=("$1" "$2")
shift 2
first=$((1000000 + $(date +%s) * 1000))
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait' EXIT
trap 'exit 130' INT TERM
for program in "${programs[@]}"; do
  "$program" --first="$first" --seeds=0 "$@" &
  pids+=("$!")
done
wait -n
