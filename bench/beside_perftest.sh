#!/usr/bin/env bash
# How near does Hawser come to verbs? One table: its calls beside perftest on the same RDMA device, with the same sizes and
# the same way of waiting, and beside TCP on that device's network interface. All are measured in turn, several rounds, and
# the medians printed.
#
#   beside_perftest.sh [--rounds=5] [--calls=3000] [--megabytes=64] [--sizes=65536,1048576,16777216]
#
#   --calls       echoes of 64 bytes in each measurement of latency
#   --megabytes   what each measurement of throughput moves, in 10^6 bytes
#
# The device is $HAWSER_RDMA_DEVICE, with the IPv4 address $HAWSER_RDMA_ADDRESS; README.md says how to run this in a guest.
# perftest's latency is one way, so it is doubled. Its throughput is that of ib_read_bw, which READs from memory that is
# ready into memory that no program reads: the transfer that a put or a get consists of.
set -euo pipefail

rounds=5 calls=3000 megabytes=64 sizes=65536,1048576,16777216
for argument in "$@"; do
  case $argument in
    --rounds=*) rounds=${argument#*=} ;;
    --calls=*) calls=${argument#*=} ;;
    --megabytes=*) megabytes=${argument#*=} ;;
    --sizes=*) sizes=${argument#*=} ;;
    *) echo "beside_perftest.sh: no option '$argument'; they are in the head of this file" >&2 && exit 2 ;;
  esac
done
device=${HAWSER_RDMA_DEVICE:?is not set: which device} address=${HAWSER_RDMA_ADDRESS:?is not set: what address the device has}

# Bazel lays the programs beside this file; by hand they are where Bazel built them.
here=$(cd "$(dirname "$0")" && pwd)
[[ -x $here/latency ]] || here=$here/../bazel-bin/bench
[[ -x $here/latency && -x $here/payload ]] ||
  { echo 'beside_perftest.sh: build first: ./bazelw build --config=lto //bench:latency //bench:payload' >&2 && exit 2; }

# On one core, as in virtual time, two that spin would wait for the scheduler's tick.
modes='spin:2 sleep:1'
(($(nproc) > 1)) || modes=sleep:1

results=$(mktemp -d)
server=''
trap '[[ -z $server ]] || kill "$server" 2>/dev/null; rm -rf "$results"' EXIT

# note <figure> <value>
note() { echo "$2" >>"$results/$1"; }

# median <figure>
median() { sort -g "$results/$1" | sed -n "$(((rounds + 1) / 2))p"; }

# perftest <column> <program> [option]...: sets `value` to the one in that column of the result. The server runs on the core
# $server_core, the client, as Hawser's benchmarks do, on the first. Tries again, because perftest at times misjudges the
# processor's clock and prints `inf`, and because a server is seen to listen a moment before it can be reached.
server_core=1 on_core=()
(($(nproc) == 1)) || on_core=('taskset -c 0' 'taskset -c 1')
perftest() {
  local column=$1 program=$2 log=$results/perftest.log
  shift 2
  local command=("$program" -d "$device" -R -F "$@")
  for _ in 1 2 3 4 5; do
    ${on_core[server_core]-} timeout 120 "${command[@]}" >"$log.server" 2>&1 &
    server=$!
    until rdma resource show cm_id | grep -q 'LISTEN.*:18515'; do
      kill -0 "$server" 2>/dev/null || { cat "$log.server" >&2 && return 1; }
    done
    if ${on_core[0]-} timeout 120 "${command[@]}" "$address" >"$log" 2>&1; then
      wait "$server" || true
      value=$(awk -v column="$column" '/^ *#bytes/ { header = NR } header && NR == header + 1 { print $column }' "$log")
      [[ ! $value =~ ^[0-9.]+$ || $value == 0.00 ]] || { server='' && return; }
    else
      kill "$server" 2>/dev/null || true
      wait "$server" || true
    fi
  done
  cat "$log.server" "$log" >&2
  echo "beside_perftest.sh: $program gives no figure" >&2
  return 1
}

# hawser <latency or payload> [option]...: sets `json` to what it prints.
hawser() {
  local program=$1
  shift
  json=$("$here/$program" --rounds=1 "$@")
}

# field <name>: of each line of `json`.
field() { sed -E "s/.*\"$1\": ([0-9.e+]+).*/\1/" <<<"$json"; }

mib_per_s() { awk -v n="$1" 'BEGIN { printf "%.6g\n", n / 1048576 }'; }

for ((round = 1; round <= rounds; ++round)); do
  # A side that spins needs a core for itself. A side that sleeps wakes soonest on the core of the side that wakes it:
  # waking another core of a guest takes a hundred times as long as everything that is measured.
  for mode in $modes; do
    wait=()
    [[ $mode == spin:2 ]] || wait=(-e) server_core=0
    perftest 5 ib_send_lat -s 64 -n "$calls" "${wait[@]}"
    server_core=1
    note "$mode.perftest" "$(awk -v n="$value" 'BEGIN { print 2 * n }')"
    for fabric in rdma tcp; do
      hawser latency --modes=$mode --bytes=64 --calls="$calls" --address=$fabric://$address:0
      note $mode.$fabric "$(field median_call_us)"
    done
    note $mode.raw "$(field floor_us)"
  done
  for size in ${sizes//,/ }; do
    count=$((megabytes * 1000000 / size))
    perftest 4 ib_read_bw -s "$size" -n $((count < 5 ? 5 : count)) # It takes no fewer.
    note "$size.perftest" "$value"
    for fabric in rdma tcp; do
      hawser payload --sizes="$size" --gigabytes="$(awk -v n="$megabytes" 'BEGIN { print n / 1000 }')" \
        --address=$fabric://$address:0
      { read -r put && read -r get; } < <(field bytes_per_s)
      note "$size.put.$fabric" "$(mib_per_s "$put")"
      note "$size.get.$fabric" "$(mib_per_s "$get")"
    done
    { read -r put && read -r get; } < <(field floor_bytes_per_s)
    note "$size.put.raw" "$(mib_per_s "$put")"
    note "$size.get.raw" "$(mib_per_s "$get")"
  done
done

# row <name> <figure> <figure of perftest>
row() {
  printf '%-28s %12.1f %12.1f %7.2f %12.1f %12.1f\n' "$1" "$(median "$2.rdma")" "$(median "$3")" \
    "$(awk -v a="$(median "$2.rdma")" -v b="$(median "$3")" 'BEGIN { print a / b }')" "$(median "$2.tcp")" "$(median "$2.raw")"
}
echo "RDMA device $device, address $address, medians of $rounds rounds"
printf '%-28s %12s %12s %7s %12s %12s\n' '' 'Hawser, RDMA' perftest ratio 'Hawser, TCP' 'raw TCP'
[[ $modes != *spin* ]] || row 'echo 64 B, spinning, us' spin:2 spin:2.perftest
row 'echo 64 B, sleeping, us' sleep:1 sleep:1.perftest
for size in ${sizes//,/ }; do
  row "put $((size >> 10)) KiB, MiB/s" "$size.put" "$size.perftest"
  row "get $((size >> 10)) KiB, MiB/s" "$size.get" "$size.perftest"
done
