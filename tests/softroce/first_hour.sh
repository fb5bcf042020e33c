#!/usr/bin/env bash
# The first hour with an RDMA device that nobody has run Hawser on: what only looks comes first, what loads the device last.
# Each step says passed or failed, and how long it took; the first that failed is where to look.
#
#   ./bazelw run //tests/softroce:first_hour -- --device=mlx5_0 --address=10.0.0.1
#
#   --device=NAME       as `ibv_devices` names it
#   --address=ADDRESS   an IP address of its network interface
#   --contract=FILTER   which tests of the contract, as for --gtest_filter (all)
#   --cycles=N          grants that are made, used and revoked (1,000,000), of each kind that the device has; with windows the peer
#                       ends every other one (SEND_WITH_INV), if the device does that, and the output says how many
#   --kills=N           processes that are killed with 32 large calls under way, clients and servers each (10)
#   --connects=N        connections made one after another (1,000)
#   --connections=N     connections at once; fewer if the limit of open files allows no more (10,000)
#   --keepalive=TIME    of these connections; six times that is how long it waits for them to be idle again (2s)
#   --duration=TIME     of each figure beside a raw queue pair (2s)
#
# Both ends are on this machine, so what crosses is looped back inside the device. Needs `ulimit -l unlimited`, or as root.
source examples/processes.sh

device='' address='' contract_tests='*' cycles=1000000 kills=10 connects=1000 connections=10000 keepalive=2s duration=2s
for argument; do
  case $argument in
    --device=?*) device=${argument#*=} ;;
    --address=?*) address=${argument#*=} ;;
    --contract=?*) contract_tests=${argument#*=} ;;
    --cycles=[1-9]*) cycles=${argument#*=} ;;
    --kills=[1-9]*) kills=${argument#*=} ;;
    --connects=[1-9]*) connects=${argument#*=} ;;
    --connections=[1-9]*) connections=${argument#*=} ;;
    --keepalive=?*) keepalive=${argument#*=} ;;
    --duration=?*) duration=${argument#*=} ;;
    *) echo "first_hour: $argument: not known; the head of tests/softroce/first_hour.sh has the flags" >&2 && exit 2 ;;
  esac
done
[[ -n $device && -n $address ]] || { echo 'first_hour: give --device=NAME and --address=ADDRESS' >&2; exit 2; }

export HAWSER_RDMA_DEVICE=$device HAWSER_RDMA_ADDRESS=$address
[[ $address == *:* ]] && uri_address="[$address]" || uri_address=$address
readonly hawser=tools/hawser/hawser contract=tests/transport/fabric/verbs_contract_test

verdicts=() failed=0
# step WHAT COMMAND...: runs it, and goes on whatever comes of it.
step() {
  local what=$1 start=$SECONDS verdict=passed
  shift
  printf '\n== %s\n' "$what"
  # Not `if "$@"`, which would turn off errexit inside of a function.
  set +e
  (set -e; "$@")
  local status=$?
  set -e
  if ((status != 0)); then
    verdict="FAILED (exit status $status)"
    failed=$((failed + 1))
  fi
  verdicts+=("$(printf '%6d s  %-22s %s' $((SECONDS - start)) "$verdict" "$what")")
}

# Ends on SIGKILL at a moment that differs each time, 0.2 to 1.7 s from its start.
load_until_killed() {
  local status=0
  timeout --signal=KILL "$((RANDOM % 2)).$((2 + RANDOM % 5))" "$hawser" perf "--target=$1" --test=bandwidth \
    --direction="$2" --size=8MiB --in-flight=32 --duration=1h >"$tmp/load" 2>&1 || status=$?
  ((status == 137)) || { echo "it ended before it was killed (exit status $status):"; tail -n 5 "$tmp/load"; return 1; }
}
serves() { "$hawser" perf "--target=$1" --test=latency --duration=20ms --warmup=1ms >/dev/null; }

kill_clients() {
  start_server server "$hawser" perf "--serve=rdma://$uri_address:0" "--device=$device"
  for ((i = 0; i < kills; ++i)); do
    load_until_killed "$uri" "$(((i % 2)) && echo to || echo from)"
    serves "$uri"
  done
  echo "the server serves after $kills of its clients were killed"
  end server
  ((status == 0))
}

kill_servers() {
  for ((i = 0; i < kills; ++i)); do
    start_server server "$hawser" perf "--serve=rdma://$uri_address:0" "--device=$device"
    start client "$hawser" perf "--target=$uri" --test=bandwidth --direction=from --size=8MiB --in-flight=32 --duration=1h
    await client.out '^rdma://' >/dev/null  # It is connected.
    end server KILL
    finish client
    [[ $status != 0 && $status != 'still running' ]] || { echo "the client of a killed server: $status"; return 1; }
    [[ -s $tmp/client.err ]] || { echo 'the client says nothing'; return 1; }
  done
  tail -n 1 "$tmp/client.err"
}

beside_raw() {
  start_server server "$hawser" perf "--serve=rdma://$uri_address:0" "--device=$device"
  "$hawser" perf "--target=$uri" "--device=$device" "--duration=$duration"
  end server
}

step 'what the machine, the device and the driver say' tools/doctor/hawser-doctor
step "the fabric's contract" "$contract" --gtest_brief=1 "--gtest_filter=$contract_tests-*OverAndOver*"
step "$cycles grants that are made, used and revoked" \
  env "HAWSER_GRANT_CYCLES=$cycles" "$contract" '--gtest_filter=*OverAndOver*'
step "$kills clients are killed with 32 large calls under way" kill_clients
step "$kills servers are killed with 32 large calls under way" kill_servers
step "$connects connections, one after another" \
  bench/connections "--address=rdma://$uri_address:0" "--connections=$connects" --idle_seconds=0.1 --keepalive=500ms
step 'beside a raw queue pair' beside_raw
step "$connections connections at once" \
  bench/connections "--address=rdma://$uri_address:0" "--connections=$connections" "--keepalive=$keepalive"

printf '\n'
printf '%s\n' "${verdicts[@]}"
((failed == 0))
