#!/usr/bin/env bash
# kv watch: every change, in order, once. The argument: how many changes, if not 100000.
source tests/examples/checks.sh
kv=examples/kv/client/kv
# Over RDMA fewer: that is mostly an emulated machine. Over siw, the second device there, fewer still.
changes=${1:-${HAWSER_RDMA_ADDRESS:+2000}}
changes=${changes:-100000}
patience=120

# write PREFIX COUNT: that many puts.
write() {
  "$kv" --target="$uri" bench --workload=c --records="$2" --operations=0 --value_size=10 --prefix="$1" --in_flight=8 >/dev/null
}

# in_order FILE FIRST LAST: the file's changes are exactly those revisions, in that order.
in_order() {
  awk -F'\t' -v want="$2" -v last="$3" '
    $4 != want++ { print "line " NR ": " $0 ", wanted revision " want - 1; bad = 1; exit }
    END { if (!bad && want != last + 1) { print "ends before revision " want; bad = 1 }; exit bad }' "$1"
}

# stat NAME: a figure of the server.
stat() { "$kv" --target="$uri" stats | awk -v name="$1" '$1 == name { print $2 }'; }

start_server server examples/kv/kv_server --listen="$any_port"

# ---- What a line is.

start watch "$kv" --target="$uri" watch p/ --count=3
await watch.err '^watching "p/" from revision 0$' >/dev/null
"$kv" --target="$uri" put p/1 value >/dev/null
"$kv" --target="$uri" put q/1 value >/dev/null
"$kv" --target="$uri" put p/1 other >/dev/null
"$kv" --target="$uri" del p/1 >/dev/null
finish watch
check 'watch ends after --count changes' is "$status" 0
check 'and prints put or delete, key, size, revision, of its prefix only' is "$(<"$tmp/watch.out")" \
  $'put\tp/1\t5\t1\nput\tp/1\t5\t3\ndelete\tp/1\t0\t4'

# ---- Many changes by four clients; beside it a watcher that has stopped.

first=$(($(stat revision) + 1))
last=$((first + changes / 4 * 4 - 1))
start stopped "$kv" --target="$uri" watch many/ --count=$((last - first + 1))
await stopped.err '^watching' >/dev/null
kill -STOP "${pid_of[stopped]}"
start watch "$kv" --target="$uri" watch many/ --count=$((last - first + 1))
await watch.err '^watching' >/dev/null
SECONDS=0
for writer in 1 2 3 4; do start "writer$writer" write "many/$writer/" $((changes / 4)); done
for writer in 1 2 3 4; do
  finish "writer$writer"
  check "writer $writer is not held up" is "$status" 0
done
echo "$changes changes were written in $SECONDS s"
finish watch
check "a watcher sees $changes changes by four clients" is "$status" 0
check 'each once and in order' in_order "$tmp/watch.out" "$first" "$last"
kill -CONT "${pid_of[stopped]}"
finish stopped
check 'the one that had stopped goes on' is "$status" 0
check 'and has not lost any, because the log reaches back far enough' in_order "$tmp/stopped.out" "$first" "$last"
end server

# ---- A watcher that the log has left behind.

start_server server examples/kv/kv_server --listen="$any_port" --watch_log=4KiB
start watch "$kv" --target="$uri" watch late/ --count=1000000
await watch.err '^watching' >/dev/null
kill -STOP "${pid_of[watch]}"
write late/ 2000
kill -CONT "${pid_of[watch]}"
await watch.out $'^lost\tlate/\t' >/dev/null
check 'a watcher that falls behind is told so' is 0 0
"$kv" --target="$uri" put late/end value >/dev/null
await watch.out $'^put\tlate/end\t' >/dev/null
check 'and goes on' is 0 0
# What it printed since the last "lost" is all that is there.
tac "$tmp/watch.out" | sed '/^lost\t/Q' | cut -f 2 | sort -u >"$tmp/seen"
"$kv" --target="$uri" list late/ | cut -f 1 | sort >"$tmp/there"
check 'knowing all that is there' cmp "$tmp/seen" "$tmp/there"

# ---- The server goes and comes back.

end server KILL
await watch.err UNAVAILABLE >/dev/null
check 'a watcher says that the connection is lost' is 0 0
start_server server examples/kv/kv_server --listen="$uri"
await watch.out $'^lost\tlate/\t0\t0$' >/dev/null
check 'resumes when the server is back' is 0 0
check 'and knows that it is another history' is 0 0
"$kv" --target="$uri" put late/new value >/dev/null
await watch.out $'^put\tlate/new\t5\t1$' >/dev/null
check 'and sees what changes then' is 0 0

# ---- The watcher goes.

check 'the server knows one watch' is "$(stat watches)" 1
end watch KILL
SECONDS=0
until [[ $(stat watches) == 0 ]] || ((SECONDS > patience)); do :; done
check 'and forgets it when the watcher is killed' is "$(stat watches)" 0

verdict
