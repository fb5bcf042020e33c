#!/usr/bin/env bash
# hawser perf: each figure beside its floor. Over TCP these are raw sockets, over RDMA raw queue pairs.
source tests/examples/checks.sh
hawser=tools/hawser/hawser

# fields JSON EXPRESSION...: of python3, with `t` for the first test. Sets the array `fields`.
fields() {
  mapfile -t fields < <(python3 -c 'import json, sys
r = json.loads(sys.argv[1])
t = r["tests"][0]
for expression in sys.argv[2:]: print(eval(expression))' "$@")
}
measure() { run "$hawser" perf --target="$uri" --duration=50ms --warmup=10ms "$@"; }

start_server server "$hawser" perf --serve="$any_port"
measure --json
fields "$out" \
  '[x["ratio"] > 0 and x["floor"]["calls"] > 0 and x["floor"]["seconds"] >= 0.03 for x in r["tests"]]' \
  'abs(t["ratio"] - t["p50_us"] / t["floor"]["p50_us"]) < 0.01 * t["ratio"]' \
  '[abs(x["ratio"] - x["bytes_per_s"] / x["floor"]["bytes_per_s"]) < 0.01 * x["ratio"] for x in r["tests"][2:]]' \
  't["floor"]["by"]'
check 'each figure has its floor' is "$status-${fields[0]:-}" '0-[True, True, True, True]'
check 'the ratio of latencies is that of the medians' is "${fields[1]:-}" True
check 'that of bandwidths is theirs' is "${fields[2]:-}" '[True, True]'

by='raw sockets'
[[ $any_port == tcp://* ]] || by='SENDs of a raw queue pair'
check 'it says by what' is "${fields[3]:-}" "$by"

measure
by=$(grep '^  floor ' <<<"$out" | sed 's/.*   //' | paste -sd,)
if [[ $any_port == tcp://* ]]; then
  check 'and so do the lines for people' is "$by" 'raw sockets,raw sockets,raw sockets,raw sockets'
else
  check 'and so do the lines for people' is "$by" \
    'SENDs of a raw queue pair,SENDs of a raw queue pair,READs of a raw queue pair,READs of a raw queue pair'
  for direction in to from both; do
    measure --test=bandwidth --direction="$direction" --way=send --size=32KiB
    check "payloads in SENDs ($direction): so is the floor" is "$status-$(grep -c 'SENDs of a raw queue pair' <<<"$out")" 0-1
    measure --test=rate --direction="$direction" --in-flight=300
    check "any number in flight ($direction)" is "$status-$(grep -c 'SENDs of a raw queue pair' <<<"$out")" 0-1
  done
  measure --test=bandwidth --size=20MiB --direction=from
  check 'transfers above 8 MiB have the floor of these' is "$status-$(grep -c 'READs of a raw queue pair' <<<"$out")" 0-1
  measure --test=latency --size=20MiB
  check 'but no latency' is "$status-$(grep -c 'floor   none: raw queue pairs exchange 8 MiB at most' <<<"$out")" 0-1
fi
for polling in spin sleep; do
  measure --test=latency --polling="$polling" --json
  fields "$out" 't["ratio"] > 0'
  check "the floor is measured with $polling polling" is "$status-${fields[0]:-}" 0-True
done
end server INT
check 'the server lives until it is interrupted' is "$status" 0
verdict
