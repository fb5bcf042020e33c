#!/usr/bin/env bash
# What kv prints, and its exit status: 0 done, 1 not found or failed, 2 wrong usage.
source tests/examples/checks.sh
kv=examples/kv/client/kv

start_server server examples/kv/kv_server --listen="$any_port"
target=--target=$uri

# ---- Done: 0.

run "$kv" "$target" put tow 'a rope'
check 'put prints the revision' is "$status-$out" '0-revision 1'
run "$kv" "$target" get tow
check 'get prints the value' is "$status-$out" '0-a rope'
check 'and nothing else' is "$("$kv" "$target" get tow | wc -c)" 6
run "$kv" put bow line "$target"
check 'flags may stand behind the command' is "$status-$out" '0-revision 2'
run "$kv" get "$target" bow
check 'and within it' is "$status-$out" '0-line'
run "$kv" "$target" put -- --strange --value
check 'behind two dashes everything is a word' is "$status-$("$kv" "$target" get -- --strange)" '0---value'
run "$kv" "$target" put empty ''
check 'a value may be empty' is "$status-$("$kv" "$target" get empty | wc -c)" 0-0

run "$kv" "$target" list
check 'list prints KEY SIZE REVISION, sorted' is "$out" \
  $'--strange\t7\t3\nbow\t4\t2\nempty\t0\t4\ntow\t6\t1'
run "$kv" "$target" list t
check 'of a prefix' is "$status-$out" $'0-tow\t6\t1'
run "$kv" "$target" list none
check 'of which there may be none' is "$status-$out" '0-'

run "$kv" "$target" del bow
check 'del prints the revision' is "$status-$out" '0-revision 5'
run "$kv" "$target" stats
check 'stats counts the keys' has "$out" $'keys\t3'

for size in 0 1 2047 2048 4000 4096 5000 1000000; do
  head -c "$size" /dev/urandom >"$tmp/in"
  run "$kv" "$target" put "file" --file="$tmp/in"
  check "a file of $size bytes is put" is "$status" 0
  run "$kv" "$target" get file --out="$tmp/out"
  check 'and got back' cmp "$tmp/in" "$tmp/out"
done
ln -s in "$tmp/link"
run "$kv" "$target" get file --out="$tmp/link"
check '--out replaces what is there' cmp "$tmp/in" "$tmp/link"
mkdir "$tmp/folder"
run "$kv" "$target" get file --out="$tmp/folder/out"
check 'and leaves nothing beside it' is "$(ls "$tmp/folder")" out
run "$kv" "$target" get tow --out=/dev/stdout
check '--out may be a pipe' is "$out" 'a rope'
run "$kv" --help
check 'help is no error' is "$status-${out%% *}" '0-usage:'

# ---- Not found, or failed: 1, and the reason.

run "$kv" "$target" get none
check 'get of a key that is not there' is "$status-$err" '1-kv get: NOT_FOUND: no key "none"'
run "$kv" "$target" del none
check 'del of a key that is not there' is "$status-$err" '1-kv del: NOT_FOUND: no key "none"'
run "$kv" "$target" put '' x
check 'an empty key' has "$status-$err" '1-kv put: INVALID_ARGUMENT: the key is empty'
run "$kv" "$target" put $'two\nlines' x
check 'a key of two lines' has "$status-$err" '1-kv put: INVALID_ARGUMENT: the key has a control character'
run "$kv" "$target" put "$(printf '%05000d' 0)" x
check 'a key that is too long' has "$status-$err" '1-kv put: INVALID_ARGUMENT: the key has 5000 bytes; it may have 4096'
run "$kv" "$target" put key --file="$tmp/none"
check 'a file that is not there' has "$status-$err" "1-kv put: NOT_FOUND: cannot open $tmp/none"
run "$kv" "$target" put key --file=/dev/null
check 'a file that is none' has "$status-$err" '1-kv put: FAILED_PRECONDITION: /dev/null is no regular file'
run "$kv" "$target" load "$tmp/none"
check 'a folder that is not there' has "$status-$err" "cannot list $tmp/none"
check 'is an error' is "$status" 1
run "$kv" "$target" get file --out="$tmp/none/out"
check 'a folder that is not there, for --out' has "$status-$err" "1-kv get: NOT_FOUND: cannot create $tmp/none/out"
run "$kv" "$target" get file --out=/dev/full
check 'a full disk' has "$status-$err" 'No space left on device'
check 'is an error' is "$status" 1
run bash -c 'ulimit -f 100; exec "$@"' - "$kv" "$target" get file --out="$tmp/folder/too_large"
check 'a file that may not grow so far' has "$status-$err" "cannot write $tmp/folder/too_large"
check 'is an error' is "$status" 1
check 'and leaves no part of a file' is "$(ls "$tmp/folder")" out
run bash -c '"$@" >/dev/full' - "$kv" "$target" list
check 'stdout that takes nothing' has "$status-$err" '1-kv list: RESOURCE_EXHAUSTED: cannot write to stdout'
run "$kv" --target=tcp://127.0.0.1:1 --timeout=5s get key
check 'nobody there' has "$status-$err" '1-kv get: UNAVAILABLE'
run "$kv" --target=here get key
check 'no URI' has "$status-$err" '1-kv get: INVALID_ARGUMENT'
run "$kv" --target=tcp://no-such-host.invalid:1 get key
# UNAVAILABLE where no name server answers.
check 'no such host' has "$status-${err/UNAVAILABLE/NOT_FOUND}" '1-kv get: NOT_FOUND: connecting to tcp://no-such-host.invalid:1: getaddrinfo(no-such-host.invalid)'

# ---- Wrong usage: 2, what is wrong, and how it is right.

wrong() {
  run "${@:2}"
  check "wrong usage: ${*:3}" is "$status-${err%%$'\n'*}" "2-$1"
  check 'with a usage line' has "$err" $'\nusage: kv --target='
}
wrong 'kv: no command' "$kv"
wrong 'kv: no command "gte"' "$kv" "$target" gte key
wrong 'kv get: no --target: which server?' "$kv" get key
wrong 'kv get: it needs KEY' "$kv" "$target" get
wrong 'kv get: do not know what to do with "more"' "$kv" "$target" get key more
wrong 'kv get: there is no flag --file here' "$kv" "$target" get key --file=x
wrong 'kv get: --out needs a value: --out=...' "$kv" "$target" get key --out
wrong 'kv put: it needs VALUE or --file=PATH' "$kv" "$target" put key
wrong 'kv put: do not know what to do with "value"' "$kv" "$target" put key value --file=x
wrong 'kv watch: it needs PREFIX' "$kv" "$target" watch
wrong 'kv watch: --count=many: that is not a whole number' "$kv" "$target" watch p --count=many
wrong 'kv load: it needs DIR' "$kv" "$target" load
wrong 'kv bench: it needs --workload=a to f' "$kv" "$target" bench
wrong 'kv bench: --workload=x: there are a, b, c, d, e and f' "$kv" "$target" bench --workload=x
wrong 'kv list: --timeout=5: that is not a time span: 250ms, 10s and 2m are' "$kv" "$target" list --timeout=5

run examples/kv/kv_server
check 'a server without an address' is "$status" 2
run examples/kv/kv_server --listen="$uri" --memory=1
check 'a server with too little memory' is "$status" 2
run examples/kv/kv_server --listen="$uri"
check 'a port in use' is "$status" 1

# ---- Each workload runs.

for workload in a b c d e f; do
  run "$kv" "$target" bench --workload=$workload --records=200 --operations=1000 --value_size=100
  check "workload $workload" has "$status-$out" "workload $workload: 1000 operations in "
  check 'is done' is "$status" 0
done
check 'with latencies' has "$out" 'read-modify-write: '

# ---- By READs, without a call.

run "$kv" "$target" get tow --one_sided
check 'a server that shares nothing' is "$status-$err" \
  '1-kv get: FAILED_PRECONDITION: this server shares no memory: start it with --one_sided'

end server
check 'SIGTERM ends the server with 0' is "$status" 0

start_server shared examples/kv/kv_server --listen="$any_port" --one_sided --shared_memory=4MiB
target=--target=$uri
run "$kv" "$target" put tow 'a rope'
run "$kv" "$target" get tow --one_sided
check 'get --one_sided prints the value' is "$status-$out-$err" '0-a rope-'
for size in 0 1 256 257 65536 65537; do
  head -c "$size" /dev/urandom >"$tmp/in"
  run "$kv" "$target" put file --file="$tmp/in"
  run "$kv" "$target" get file --out="$tmp/out" --one_sided
  check "a value of $size bytes" cmp "$tmp/in" "$tmp/out"
done
check 'that is too large is asked for, and this is said' is "$status-$err" \
  '0-kv get: "file" is not in the memory that the server shares; the server is called'
run "$kv" "$target" del tow
run "$kv" "$target" get tow --one_sided
check 'get --one_sided of a key that is not there' is "$status-$err" '1-kv get: NOT_FOUND: no key "tow"'
for workload in a b c d f; do
  run "$kv" "$target" bench --one_sided --workload=$workload --records=200 --operations=1000 --value_size=100
  check "workload $workload" has "$status-$out" "workload $workload: 1000 operations in "
  check 'is done by READs' is "$status-${out##*by a call*}" "0-$out"
done
run "$kv" "$target" bench --one_sided --workload=c --records=5 --operations=100 --value_size=70000
check 'or by calls, which are counted' has "$status-$out" '  100 of the reads by a call'

end shared
check 'SIGTERM ends this server with 0' is "$status" 0
verdict
