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

# One-sided operations, beside the same ones without Hawser.
measure --read --write --json
fields "$out" '[x["operation"] + " " + x["test"] for x in r["tests"]]' '[x["bytes"] for x in r["tests"]]' \
  '[x["ratio"] > 0 and x["calls"] > 0 and x["floor"]["calls"] > 0 and x["seconds"] >= 0.049 for x in r["tests"]]' \
  'sorted({x["floor"]["by"] for x in r["tests"]})' 'sorted({x["by_nic"] for x in r["tests"]})' \
  't["p50_us"] > 0 and "sent" not in t and "direction" not in t'
check 'READs and WRITEs' is "$status-${fields[0]:-}" \
  "0-['read latency', 'read rate', 'read bandwidth', 'write latency', 'write rate', 'write bandwidth']"
check 'of the usual sizes' is "${fields[1]:-}" '[32, 32, 1048576, 32, 32, 1048576]'
check 'each has its floor' is "${fields[2]:-}" '[True, True, True, True, True, True]'
if [[ $any_port == tcp://* ]]; then
  check 'which are raw sockets' is "${fields[3]:-}-${fields[4]:-}" "['raw sockets']-[False]"
else
  check 'which are the same operations' is "${fields[3]:-}-${fields[4]:-}" \
    "['READs of a raw queue pair', 'WRITEs of a raw queue pair']-[True]"
fi
check 'and no figures of calls' is "${fields[5]:-}" True
measure --fetch_add
if [[ $status == 0 ]]; then
  check 'fetch-and-adds' is "$(grep -c 'fetch-and-adds' <<<"$out")-$(grep -c '^  ratio ' <<<"$out")" \
    "$([[ $any_port == tcp://* ]] && echo 2-2 || echo 4-2)"
else
  check 'or there are none' has "$err" 'no atomics'
fi
for polling in spin sleep; do
  measure --test=latency --polling="$polling" --json
  fields "$out" 't["ratio"] > 0'
  check "the floor is measured with $polling polling" is "$status-${fields[0]:-}" 0-True
done
end server INT
check 'the server lives until it is interrupted' is "$status" 0
verdict
