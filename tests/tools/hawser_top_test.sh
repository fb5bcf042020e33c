#!/usr/bin/env bash
# What a server is doing, by hawser status and hawser top: as text, as JSON, and on a terminal.
source tests/examples/checks.sh
hawser=tools/hawser/hawser

field() { python3 -c 'import json, sys; print(eval("json.loads(sys.argv[1])" + sys.argv[2]))' "$1" "$2"; }
ask() { run "$hawser" "$1" --target="$uri" "${@:2}"; }
lines() { wc -l <<<"$1"; }

any_port=tcp://127.0.0.1:0  # A server answers clients that come over loopback.
start_server server examples/kv/kv_server --listen="$any_port"
for key in a b c; do "$hawser" call --target="$uri" KeyValue.put "{\"key\": \"$key\", \"value\": \"rope\"}" >/dev/null; done
"$hawser" call --target="$uri" KeyValue.get '{"key": "nothing"}' >/dev/null 2>&1 || true

# Again while the server has not noticed that the clients above are gone, or a poller does not answer in time:
# a busy machine may run one late.
for _ in {1..100}; do
  ask status
  [[ $(tr -s ' ' <<<"$out") == *'tcp ready 1 32'* ]] && break
done
check 'status is there' is "$status" 0
check 'it names the process' has "$out" "kv_server, process ${pid_of[server]} on "
check 'and where it listens' has "$out" "$uri"
check 'calls are counted by method' has "$(tr -s ' ' <<<"$out")" 'kv.capnp:KeyValue.put 3 0 0 '
check 'errors, too' has "$(tr -s ' ' <<<"$out")" 'kv.capnp:KeyValue.get 1 1 0 '
check 'connections by fabric and state' has "$(tr -s ' ' <<<"$out")" 'tcp ready 1 32'
check 'pollers' has "$out" 'POLLER'
check 'memory' has "$out" 'REGISTERED'
check 'the slowest calls' has "$out" 'NOT_FOUND'
check 'the call that asks is not among them' is "$(grep -c 'Introspection.snapshot' <<<"$out")" 0
check 'in lines of 100 columns' is "$(awk 'length > 100' <<<"$out")" ''
check 'without control sequences' is "$(grep -c $'\x1b' <<<"$out")" 0

ask status --json
check 'status as JSON is the whole snapshot' is "$status-$(field "$out" '["process"]["pid"]')" "0-${pid_of[server]}"
check 'with the options of the server' is \
  "$(field "$out" '["configuration"]' | grep -c "'ServerOptions::introspection', 'value': 'this machine'")" 1
check 'and histograms' is \
  "$(python3 -c 'import json, sys
print(sum(int(n) for m in json.loads(sys.argv[1])["methods"] if m["name"] == "kv.capnp:KeyValue.put" for n in m["latency"]["counts"]))' \
    "$out")" 3

ask top --count=2 --interval=250ms
check 'top to no terminal prints a block for each interval' is "$status-$(grep -c 'kv_server, process' <<<"$out")" 0-2
check 'of that interval' has "$out" 'calls 0/s, errors 0/s'
check 'with the time' is "$(grep -cE '^20[0-9]{2}-[0-9-]+T[0-9:.]+Z$' <<<"$out")" 2
check 'without control sequences, too' is "$(grep -c $'\x1b' <<<"$out")" 0

ask top --count=3 --interval=250ms --json
check 'and a line for each with --json' is "$status-$(lines "$out")" 0-3
for line in 1 2 3; do
  object=$(sed -n "${line}p" <<<"$out")
  check 'with rates' is "$(field "$object" '["calls_per_s"]')" 0.0
  check 'of an interval' is "$(python3 -c 'import sys; print(0.2 < float(sys.argv[1]) < 20)' "$(field "$object" '["interval_s"]')")" True
done

# Calls in between.
start top "$hawser" top --target="$uri" --interval=250ms --json
await top.out '"interval_s"' >/dev/null
"$hawser" call --target="$uri" KeyValue.get '{"key": "a"}' >/dev/null
out=$(await top.out 'KeyValue\.get", "calls_per_s": (0\.[0-9]*[1-9]|[1-9])')
check 'calls of an interval have rates and times' is "$(python3 -c 'import json, sys
print([m["calls_per_s"] > 0 and m["p99_us"] > 0 for m in json.loads(sys.argv[1])["methods"] if m["name"] == "kv.capnp:KeyValue.get"])' \
  "$out")" '[True]'
end top

ask top --interval=1ms
check 'an interval that is too short is wrong usage' is "$status-$(grep -c '250ms' <<<"$err")" 2-1
end server KILL
ask status
check 'without a server: where to look' is "$status-$(grep -c "cannot connect to $uri.*hawser doctor" <<<"$err")" 1-1
ask top
check 'the same for top' is "$status-$(grep -c "cannot connect to $uri.*hawser doctor" <<<"$err")" 1-1

# Both end in order. This server ends before the log is read, and not by a signal that leaves it no time to write.
start_server orderly examples/kv/kv_server --listen="$any_port"
ask status
ask top --count=3 --interval=250ms
end orderly
check 'the server has lost no client' is "$status-$(grep -c 'was lost' "$tmp/orderly.err")" 0-0

# --count ends by the clock of this machine, whatever the server does: without that these would never end.
start_server lost tests/tools/everything_server
start top "$hawser" top --target="$uri" --interval=250ms --count=40 --timeout=5s
await top.out '^20[0-9]{2}-' >/dev/null
end lost KILL
finish top
check 'top with --count ends without its server' is "$status-$(grep -c '^hawser top: connection lost: .*; trying again$' "$tmp/top.err")" 1-1
start_server still tests/tools/everything_server --lie=clock
ask top --count=3 --interval=250ms
check 'and when the clock of the server stands still' is "$status-$(grep -c '^hawser top: no new snapshot: .*; trying again$' <<<"$err")" 1-1
check 'and says so' has "$err" "hawser top: UNAVAILABLE: the snapshots of $uri have the same time again and again; "
check 'without a block' is "$out" ''
start_server restarts tests/tools/everything_server --lie=starts
ask top --count=3 --interval=250ms
check 'and when there is another server each time' is "$status-$out" 1-
check 'and says so' has "$err" 'another server answers at'

start_server other tests/tools/everything_server --no_introspection
ask top
check 'a server without the service: what to do' is \
  "$status-$(grep -c 'the server has no introspection service.*ServerOptions::introspection' <<<"$err")" 1-1
ask status --json
check 'with --json, too' is "$status-$(field "$out" '["error"]["code"]')" 1-UNIMPLEMENTED

start_server evil tests/tools/everything_server --lie=snapshots
for words in status 'top --count=1 --interval=250ms'; do
  read -ra words <<<"$words"
  ask "${words[@]}"
  check "what a hostile server says is shown by ${words[0]}" is "$status" 0
  check 'escaped' is "$(grep -c $'[\x1b\x07\r]' <<<"$out")-$(grep -c '\\x1b\[2J' <<<"$out" | sed 's/^[1-9].*/some/')" 0-some
  ask "${words[@]}" --json
  check 'and is JSON all the same' is "$status-$(python3 -c 'import json, sys; print(json.load(sys.stdin)["process"] != "")' <<<"$out")" 0-True
  check 'without control sequences' is "$(grep -c $'[\x1b\x07\r]' <<<"$out")" 0
done

run tests/tools/top_screen.py "$hawser" examples/kv/kv_server tests/tools/everything_server
check 'a terminal shows it' is "$status" 0
echo "$out"
verdict
