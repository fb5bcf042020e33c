#!/usr/bin/env bash
# A side that is killed in the middle of calls and of READs.
source tests/examples/checks.sh
kv=examples/kv/client/kv

# stat NAME: a figure of the server.
stat() { "$kv" --target="$uri" stats | awk -v name="$1" '$1 == name { print $2 }'; }

# busy NAME WORKLOAD: a client that always has eight calls in flight, with values of 4 MiB, so that most of the time a READ
# is under way.
busy() {
  start "$1" "$kv" --target="$uri" bench --workload="$2" --records=16 --value_size=4MiB --operations=100000000 --in_flight=8
  await "$1.out" '^load: ' >/dev/null
}

start_server server examples/kv/kv_server --listen="$any_port"

# ---- The client is killed.

"$kv" --target="$uri" bench --workload=a --records=16 --value_size=4MiB --operations=10 >/dev/null
leased=$(stat leased_bytes)
# Its own; that of the stat before may not be gone yet.
SECONDS=0
until connections=$(stat connections); ((connections == 1 || SECONDS > patience)); do :; done
for workload in c a; do
  busy client $workload
  end client KILL
  # Less than one value more than before; and only the connection and the call that ask.
  settled() { (($(stat leased_bytes) < leased + (4 << 20))) && [[ $(stat connections)-$(stat calls_running) == "$connections-1" ]]; }
  SECONDS=0
  until settled || ((SECONDS > patience)); do :; done
  check "a client that was killed during workload $workload leaves nothing at the server" settled
done
echo "leased: $leased bytes before, $(stat leased_bytes) after"

# ---- The server is killed.

for workload in c a; do
  busy reader $workload
  SECONDS=0
  end server KILL
  finish reader
  check "workload $workload ends when the server is killed" is "$status" 1
  check 'with Unavailable' has "$(<"$tmp/reader.err")" 'kv bench: UNAVAILABLE: '
  check "at once ($SECONDS s)" at_most "$SECONDS" 10
  start_server server examples/kv/kv_server --listen="$uri"
  run "$kv" --target="$uri" put key value
  check 'and the server can be used as soon as it is back' is "$status-$out" '0-revision 1'
done

verdict
