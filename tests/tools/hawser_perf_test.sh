#!/usr/bin/env bash
# hawser perf: that it measures what it says. Of the figures themselves only what holds on a busy machine.
source tests/examples/checks.sh
hawser=tools/hawser/hawser
short=(--duration=50ms --warmup=10ms)

# field JSON EXPRESSION: of python3, with `t` for the first test.
field() { python3 -c 'import json, sys; r = json.loads(sys.argv[1]); t = r["tests"][0]; print(eval(sys.argv[2]))' "$1" "$2"; }
measure() { run "$hawser" perf --target="$uri" "${short[@]}" "$@"; }
over_tcp() { [[ $any_port == tcp://* ]]; }

# A server that does not allow it.
start_server closed examples/echo/echo_server --listen="$any_port"
measure
check 'a server without it is exit status 1' is "$status" 1
check 'and the error says what to do' has "$err" 'hawser perf --serve=URI'
check 'and the option' has "$err" 'ServerOptions::extensions'
end closed

# Servers that do: the figures, and what the server itself counted.
start_server server examples/echo/echo_server --listen="$any_port" --perf --status=127.0.0.1:0
metrics=$(await server.out '^status on ')
metrics=${metrics#status on }/metrics
# calls METHOD: what the server has counted.
calls() {
  python3 -c 'import re, sys, urllib.request
text = urllib.request.urlopen(sys.argv[1]).read().decode()
print(sum(int(n) for n in re.findall(r"hawser_server_calls_total\{[^}]*perf.capnp:Perf\.%s\"[^}]*\} (\d+)" % sys.argv[2], text)))' \
    "$metrics" "$1"
}
measure --json
check 'all tests in one run' is "$status-$(field "$out" '[x["test"] + " " + x["direction"] for x in r["tests"]]')" \
  "0-['latency both', 'rate both', 'bandwidth to', 'bandwidth from']"
check 'of the usual sizes' is "$(field "$out" '[x["bytes"] for x in r["tests"]]')" '[32, 32, 1048576, 1048576]'
check 'latencies are in order' is \
  "$(field "$out" '0 < t["min_us"] <= t["p50_us"] <= t["p99_us"] <= t["p999_us"] <= t["max_us"]')" True
check 'and add up to the time' is "$(field "$out" 'abs(t["mean_us"] * t["calls"] / 1e6 / t["seconds"] - 1) < 0.01')" True
check 'the time is that which was asked for' is "$(field "$out" '[x["seconds"] >= 0.049 for x in r["tests"]]')" \
  '[True, True, True, True]'
check 'rates are calls in that time' is \
  "$(field "$out" '[abs(x["calls_per_s"] * x["seconds"] / x["calls"] - 1) < 0.01 for x in r["tests"][1:]]')" '[True, True, True]'
check 'bandwidths are their bytes' is \
  "$(field "$out" '[abs(x["bytes_per_s"] / x["calls_per_s"] / x["bytes"] - 1) < 0.01 for x in r["tests"][1:]]')" '[True, True, True]'
check 'small payloads crossed whole' is "$(field "$out" 't["sent"]["whole"] == t["received"]["whole"] == t["calls"]')" True
check 'large ones were READ' is "$(field "$out" 'r["tests"][2]["sent"]["read"] == r["tests"][2]["calls"]')" True
check 'the server has counted as many echoes' is "$(calls echo)" \
  "$(field "$out" 'sum(x["calls"] + x["warm_up_calls"] for x in r["tests"] if x["direction"] == "both")')"
check 'and puts' is "$(calls put)" "$(field "$out" 'r["tests"][2]["calls"] + r["tests"][2]["warm_up_calls"]')"
check 'and gets' is "$(calls get)" "$(field "$out" 'r["tests"][3]["calls"] + r["tests"][3]["warm_up_calls"]')"
check 'each has its floor' is "$(field "$out" '[x["ratio"] > 0 and x["floor"]["calls"] > 0 for x in r["tests"]]')" \
  '[True, True, True, True]'
check 'and the ratio to it' is "$(field "$out" 'abs(t["ratio"] - t["p50_us"] / t["floor"]["p50_us"]) < 0.01 * t["ratio"]')" True

measure
check 'people get lines' has "$out" 'latency, 32 B there and back'
check 'with quantiles' has "$out" 'p99.9 '
check 'and how payloads crossed' has "$out" 'crossed whole'
check 'of bandwidth, too' has "$out" 'Gbit/s   crossed read'
check 'and no error' is "$status-$err" 0-

measure --test=latency --size=8KiB --direction=from --json
check 'one test, with its size and direction' is \
  "$(field "$out" '(len(r["tests"]), t["test"], t["bytes"], t["direction"])')" "(1, 'latency', 8192, 'from')"
measure --test=rate --in-flight=100
check 'more in flight than slots: a remark' has "$out" 'the server has 32 slots'
measure --test=rate --polling=sleep --json
check 'how this side waits' is "$status-$(field "$out" 'r["polling"]')" 0-sleep
for size in 1 4095 4096 4097 100000; do
  measure --test=latency --size="$size" --json
  check "$size bytes there and back" is "$status-$(field "$out" 't["calls"] > 0')" 0-True
done

# One-sided operations.
measure --read --test=rate --in-flight=16 --size=1KiB --json
check 'one-sided READs' is "$status-$(field "$out" '(t["operation"], t["bytes"], t["in_flight"], t["calls"] > 0)')" \
  "0-('read', 1024, 16, True)"
before=$(calls get)
measure --read --write --fetch_add
check 'all of them in one run' is "$status-$(grep -cE '^(latency|rate|bandwidth), (READs|WRITEs|fetch-and-adds)' <<<"$out")" 0-8
check 'people see who carries them out' has "$out" "by the server's"
check 'and no handler runs' is "$(calls get)" "$before"
measure --write --test=latency --size=5MiB
check 'more than the server shares' is "$status-$(grep -c 'the server shares 4 MiB for this' <<<"$err")" 1-1
measure --read --test=bandwidth --size=4MiB --in-flight=100
check 'more in flight than this side has memory for' is "$status-$(grep -c 'choose fewer (--in-flight)' <<<"$err")" 1-1
for wrong in '--read --direction=to' '--write --way=send' '--fetch_add --size=16' '--fetch_add --test=bandwidth'; do
  # shellcheck disable=SC2086 # Words.
  measure $wrong
  check "wrong usage: $wrong" is "$status" 2
done

# How payloads cross.
measure --way=send --test=latency --size=2KiB --json
check '--way=send' is "$status-$(field "$out" 't["sent"]["whole"] == t["calls"]')" 0-True
measure --way=send --test=latency --size=8KiB
check 'is bounded by the receive buffer of the server' is \
  "$status-$(grep -c 'do not fit one SEND: receive buffers of the server have 4096 bytes' <<<"$err")" 1-1
measure --way=read --test=latency --size=1MiB --json
check '--way=read' is "$status-$(field "$out" 't["sent"]["read"] == t["received"]["read"] == t["calls"]')" 0-True
measure --way=read --test=latency --size=32
check 'cannot be for what fits a SEND' is "$status-$(grep -c 'so they cross in one SEND' <<<"$err")" 1-1
if over_tcp; then
  measure --way=write --test=latency --size=8KiB --json
  check '--way=write' is "$status-$(field "$out" 't["sent"]["pushed"] > 0')" 0-True
  measure --way=write --test=latency --size=1MiB
  check 'is bounded' is "$status-$(grep -c 'up to 128 KiB are pushed' <<<"$err")" 1-1
  measure --device=mlx5_0
  check '--device is for rdma://' is "$status-$(grep -c 'for an address rdma://' <<<"$err")" 1-1
else
  measure --way=write --test=latency --size=8KiB
  check '--way=write: not over RDMA' is "$status-$(grep -c 'over RDMA nothing is WRITTEN' <<<"$err")" 1-1
fi
check 'the server lives' is "$(calls echo | wc -l)" 1
end server
check 'and ends as it should' is "$status" 0

start_server kv examples/kv/kv_server --listen="$any_port" --perf --message_max=1MiB
measure --test=latency --direction=to --json
check 'kv_server has it, too' is "$status" 0
measure --test=bandwidth --size=2MiB
check 'more than the server takes' is "$status-$(grep -c 'choose a smaller --size' <<<"$err")" 1-1
measure --test=bandwidth --size=1MiB
check 'or just as much' is "$status-$(grep -c 'message_bytes_max' <<<"$err")" 1-1
end kv

# The tool as the server.
start_server itself "$hawser" perf --serve="$any_port"
measure --way=send --test=latency --size=32KiB --json
check 'hawser perf --serve takes larger SENDs' is "$status-$(field "$out" 't["sent"]["whole"] == t["calls"]')" 0-True
run "$hawser" list --target="$uri"
check 'and serves nothing else' is "$(grep -c capnp <<<"$out")" "$(grep -cE '(health|introspection|perf|reflection)\.capnp' <<<"$out")"
end itself INT
check 'until it is interrupted' is "$status" 0
run "$hawser" perf --serve="$any_port" --target="$uri"
check 'it is one side only' is "$status" 1
run "$hawser" perf
check 'one of them is needed' is "$status-$(grep -c 'no --target' <<<"$err")" 2-1
for flag in --test=speed --direction=up --size=0 --size=1GiB --in-flight=0 --duration=never --way=post; do
  run "$hawser" perf --target=tcp://127.0.0.1:1 "$flag"
  check "wrong usage: $flag" is "$status" 2
done

# A server of an older version: it measures calls, and shares no memory.
start_server older tests/tools/lying_perf_server --lie=older
measure --read
check 'an older server shares nothing' is "$status-$(grep -c 'UNIMPLEMENTED: .*is of an older version' <<<"$err")" 1-1
end older
for lie in ticket bytes; do
  start_server liar tests/tools/lying_perf_server --lie="$lie"
  measure --read --test=latency
  expected=$([[ $lie == ticket ]] && echo 'FAILED_PRECONDITION: .*the server has shared no memory' || echo 'DATA_LOSS: .*the memory of the server has other bytes')
  check "$lie of memory: $expected" is "$status-$(grep -c "$expected" <<<"$err")" 1-1
  end liar
done

# Servers that answer something else.
for lie in short long none bytes; do
  start_server liar tests/tools/lying_perf_server --lie="$lie"
  for direction in to from both; do
    for test in latency bandwidth; do
      # `put` answers a number and no bytes.
      [[ $lie-$direction != bytes-to ]] || continue
      measure --test="$test" --direction="$direction" --size=5000
      check "$lie answers to $test $direction are DATA_LOSS" is "$status-$(grep -c 'DATA_LOSS: .*the server answered' <<<"$err")" 1-1
    done
  done
  end liar
done
for lie in honest raw; do
  start_server liar tests/tools/lying_perf_server --lie="$lie"
  measure --test=latency
  check 'without its floor a figure is a figure' is "$status-$(grep -c '^  floor   none: ' <<<"$out")" 0-1
  check 'and what the server says of it is escaped' is "$(grep -c $'\x1b' <<<"$out")" 0
  end liar
done
verdict
