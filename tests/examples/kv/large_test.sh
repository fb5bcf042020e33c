#!/usr/bin/env bash
# Values of hundreds of MiB: there and back, up to the limit and beyond.
source tests/examples/checks.sh
kv=examples/kv/client/kv
patience=120

# there_and_back SIZE: a file of random bytes.
there_and_back() {
  head -c "$1" /dev/urandom >"$tmp/in"
  SECONDS=0
  run "$kv" --target="$uri" put key --file="$tmp/in"
  check "$1 bytes are put" is "$status" 0
  run "$kv" --target="$uri" get key --out="$tmp/out"
  check 'and got' is "$status" 0
  check 'byte for byte' cmp "$tmp/in" "$tmp/out"
  echo "in $SECONDS s"
}

# too_large SIZE REASON
too_large() {
  truncate -s "$1" "$tmp/in"
  run "$kv" --target="$uri" put key --file="$tmp/in"
  check "$1 bytes are refused" is "$status" 1
  check 'with the reason' has "$err" "$2"
  run "$kv" --target="$uri" put small 'still there'
  check 'and the server is unharmed' is "$status-$("$kv" --target="$uri" get small)" '0-still there'
}

# ---- A small limit: quick, and close to it on both sides.

start_server server examples/kv/kv_server --listen="$any_port" --message_max=1MiB
limit=$(((1 << 20) - (8 << 10)))
there_and_back "$limit"
too_large $((limit + 1)) "the value has $((limit + 1)) bytes; this server takes values of $limit"
too_large $((1 << 20)) '1048576'  # The message is beyond the limit now: Hawser refuses it before it is sent.
end server

# ---- The default limit.

start_server server examples/kv/kv_server --listen="$any_port"
# Over RDMA less: it is mostly on an emulated machine, which is slow and has little memory.
if [[ -n ${HAWSER_RDMA_ADDRESS:-} ]]; then
  there_and_back $((40 << 20))
else
  there_and_back $((400 << 20))
  there_and_back $(((1 << 29) - 1))  # The largest Data of Cap'n Proto.
  too_large $((1 << 29)) 'a value may have 536870911'
fi
end server

# ---- More than the server's memory.

start_server server examples/kv/kv_server --listen="$any_port" --memory=64MiB --message_max=32MiB
truncate -s 16M "$tmp/in"
run "$kv" --target="$uri" put first --file="$tmp/in"
check 'what fits the memory is put' is "$status" 0
run "$kv" --target="$uri" put second --file="$tmp/in"
check 'and again' is "$status" 0
# The server says so 50 ms before the deadline, which is first on a machine that stands still for as long.
for _ in 1 2 3; do
  run "$kv" --target="$uri" put third --file="$tmp/in" --timeout=2s
  [[ $err == *DEADLINE_EXCEEDED* ]] || break
done
check 'what does not is refused' has "$status-$err" '1-kv put: RESOURCE_EXHAUSTED'
run "$kv" --target="$uri" get second --out="$tmp/out"
check 'what is there can be got all the same' cmp "$tmp/in" "$tmp/out"
run "$kv" --target="$uri" del first
check 'and removed' is "$status" 0
run "$kv" --target="$uri" put third --file="$tmp/in"
check 'which makes room' is "$status" 0
end server

# Values that need a buffer of their own, but fill little of it.
start_server server examples/kv/kv_server --listen="$any_port" --memory=64MiB
run "$kv" --target="$uri" bench --workload=c --records=100000 --operations=0 --value_size=5000
check 'many values fill the memory too' has "$status-$err" '1-kv bench: RESOURCE_EXHAUSTED: '
check 'as the store sees it, not in the middle of a message' has "$err" 'bytes of key and value do not fit'
key=$("$kv" --target="$uri" list | awk -F'\t' 'NR == 1 { print $1 }')
run "$kv" --target="$uri" get "$key" --out="$tmp/out"
check 'and can be got' is "$status-$(stat -c %s "$tmp/out")" 0-5000
run "$kv" --target="$uri" del "$key"
check 'and removed' is "$status" 0
end server

verdict
