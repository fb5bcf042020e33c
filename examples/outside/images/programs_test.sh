#!/usr/bin/env bash
# Runs the programs as separate processes: a client puts an image into the store and gets it from the gateway,
# and both servers exit with status 0 on SIGTERM. The test waits only for lines and exits, at most $patience
# seconds each.
set -euo pipefail

patience=30
programs=$PWD/images
cd "$TEST_TMPDIR"
declare -A pid_of=()
trap 'kill -KILL "${pid_of[@]}" 2>/dev/null || true' EXIT

fail() {
  printf 'FAILED: %s\n' "$1" >&2
  tail -n 20 -- *.out >&2
  exit 1
}

# start NAME COMMAND...: starts it in the background, with its output in NAME.out.
start() {
  : >"$1.out"
  "${@:2}" >"$1.out" 2>&1 </dev/null &
  pid_of[$1]=$!
}

# await NAME REGEX: prints the first line that matches; fails if the process ends without one.
await() {
  timeout "$patience" grep -m 1 -E -- "$2" <(exec tail -s 0.05 -n +1 -f --pid="${pid_of[$1]}" "$1.out") ||
    fail "$1 prints no line like $2"
}

# end NAME: sends SIGTERM, after which it must exit with status 0.
end() {
  local status=0
  kill -TERM "${pid_of[$1]}"
  timeout "$patience" tail -s 0.05 -f /dev/null --pid="${pid_of[$1]}" || fail "$1 goes on after SIGTERM"
  wait "${pid_of[$1]}" || status=$?
  unset "pid_of[$1]"
  ((status == 0)) || fail "$1 ended with status $status"
}

client() { timeout "$patience" "$programs/image_client" "$@"; }

start store "$programs/store_server" tcp://127.0.0.1:0
store=$(await store '^listening on ')
store=${store#listening on }
start gateway "$programs/gateway_server" tcp://127.0.0.1:0 "$store"
gateway=$(await gateway '^listening on ')
gateway=${gateway#listening on }

start watcher "$programs/image_client" watch "$store"
await watcher '^watching from version 0$'

{ printf 'P6\n2000 1500\n255\n'; head -c $((2000 * 1500 * 3)) /dev/urandom; } >sea.ppm
client put "$store" sea sea.ppm
await watcher $'^1\tsea$'
[[ $(client list "$store") == sea ]] || fail 'list'

client get "$gateway" sea copy.ppm
cmp sea.ppm copy.ppm
[[ $(client thumbnail "$gateway" sea 100 small.ppm) == '100 by 75' ]] || fail 'thumbnail'

client get "$gateway" none none.ppm 2>none.out && fail 'there is no such image'
grep -q NOT_FOUND none.out || fail 'the reason is not said'
grep -q "${store#tcp://}" none.out && fail 'the address of the store is said'

# Gets the image repeatedly until a get finds no gateway. Each image must be complete.
get_until_it_fails() {
  while client get "$gateway" sea again.ppm; do
    cmp sea.ppm again.ppm || exit
  done
}
start reader get_until_it_fails
await reader '^2000 by 1500$'
end gateway
await reader UNAVAILABLE
end store
grep -q differ reader.out && fail 'an image was not whole'
exit 0
