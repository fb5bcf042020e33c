# shellcheck shell=bash disable=SC2034
# Sourced by the demo and by the tests of the example programs: starts processes, waits for their output, and
# ends them, each by its pid. It waits for a line or an exit, never for a fixed time, and fails after
# $patience seconds. When the script ends, for any reason, it ends all processes that it started and removes
# the folder $tmp.

set -euo pipefail

patience=30
tmp=$(mktemp -d "${TEST_TMPDIR:-/tmp}/examples.XXXXXX")
declare -A pid_of=()

clean_up() {
  local pid
  for pid in "${pid_of[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$tmp"
}
trap clean_up EXIT

# start NAME COMMAND...: starts it in the background, with stdout in $tmp/NAME.out and stderr in
# $tmp/NAME.err.
start() {
  local name=$1
  shift
  : >"$tmp/$name.out" 2>"$tmp/$name.err"  # For who waits before the process has come so far.
  "$@" >"$tmp/$name.out" 2>"$tmp/$name.err" </dev/null &
  pid_of[$name]=$!
}

# await NAME.out REGEX [COUNT]: prints the first line that matches, or the first COUNT lines, as soon as they
# appear; fails if the process ends without a match.
await() {
  local file=$tmp/$1 pid=${pid_of[${1%.*}]}
  # tail waits by inotify, and ends with the process.
  timeout "$patience" grep -m "${3:-1}" -E -- "$2" <(exec tail -s 0.05 -n +1 -f --pid="$pid" "$file" 2>/dev/null) && return
  printf 'no line like "%s" in %s, which has:\n' "$2" "$1" >&2
  tail "$file" >&2
  return 1
}

# finish NAME: waits for its exit and sets $status.
finish() {
  status=0
  timeout "$patience" tail -s 0.02 -f /dev/null --pid="${pid_of[$1]}" || true
  kill -0 "${pid_of[$1]}" 2>/dev/null && { status="still running"; return; }
  wait "${pid_of[$1]}" || status=$?
  unset "pid_of[$1]"
}

# end NAME [SIGNAL]: sends the signal, waits for its exit and sets $status.
end() {
  kill -s "${2:-TERM}" "${pid_of[$1]}"
  finish "$1" 2>/dev/null
}

# start_server NAME COMMAND...: starts a server that prints "listening on URI"; sets $uri.
start_server() {
  start "$@"
  uri=$(await "$1.out" '^listening on ')
  uri=${uri#listening on }
}
