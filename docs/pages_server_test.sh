#!/usr/bin/env bash
# The server of guide.md listens, and ends with status 0 at SIGTERM; as a daemon, too.
#
#     pages_server_test.sh pages_server
set -euo pipefail
readonly server=$1
log=$TEST_TMPDIR/log

# await_line <text>: waits until the log contains the text.
await_line() {
  for ((i = 0; i < 600; ++i)); do
    if grep -q "$1" "$log"; then return; fi
    sleep 0.1
  done
  echo "no line \"$1\" in:" >&2
  cat "$log" >&2
  exit 1
}

"$server" >"$log" 2>&1 &
pid=$!
await_line "^process $pid listens on tcp://127.0.0.1:[1-9]"
kill -TERM "$pid"
wait "$pid"

# The parent ends at once; its child goes on, and ends at SIGTERM.
"$server" --daemon >"$log" 2>&1
await_line '^process [0-9]* listens on tcp://127.0.0.1:[1-9]'
pid=$(sed -n 's/^process \([0-9]*\) .*/\1/p' "$log")
kill -TERM "$pid"
for ((i = 0; i < 600; ++i)); do
  if ! kill -0 "$pid" 2>/dev/null; then
    echo PASSED
    exit
  fi
  sleep 0.1
done
echo "process $pid does not end" >&2
kill -KILL "$pid"
exit 1
