#!/usr/bin/env bash
# kv load: every file below a folder becomes a key, and comes back with the same SHA-256.
source tests/examples/checks.sh
kv=examples/kv/client/kv
dump=tests/examples/kv/dump

# sums DIR: of every file below it, symbolic links to files included. With the checksums of stdin if there are any.
sums() {
  (cd "$1" && find . \( -type f -o -type l -xtype f \) -print0 | LC_ALL=C sort -z | xargs -0 --no-run-if-empty sha256sum)
}

# loads DIR: puts it into a server of its own and gets it back.
loads() {
  start_server server examples/kv/kv_server --listen="$any_port"
  run "$kv" --target="$uri" load "$1"
  check "load $1" is "$status" 0
  echo "$out"
  SECONDS=0
  run "$dump" --target="$uri" --out="$tmp/back"
  check 'every key is read back' is "$status" 0
  echo "$out"
  sums "$1" >"$tmp/sums"
  sums "$tmp/back" >"$tmp/sums_back"
  check "all $(wc -l <"$tmp/sums") files have the same SHA-256" cmp "$tmp/sums" "$tmp/sums_back"
  check 'and are listed' is "$("$kv" --target="$uri" list | wc -l)" "$(wc -l <"$tmp/sums")"
  end server
  rm -rf "$tmp/back"
}

mkdir -p "$tmp/tree/deep/er/est"
head -c 3000000 /dev/urandom >"$tmp/tree/large"
head -c 2048 /dev/urandom >"$tmp/tree/deep/two"
head -c 10 /dev/urandom >"$tmp/tree/deep/er/small"
: >"$tmp/tree/deep/er/est/empty"
echo text >"$tmp/tree/with space and ümlaut"
ln -s large "$tmp/tree/link"
ln -s ../.. "$tmp/tree/deep/er/circle"
ln -s nowhere "$tmp/tree/dangling"
loads "$tmp/tree"

start_server server examples/kv/kv_server --listen="$any_port"
run "$kv" --target="$uri" load "$tmp/tree/" --prefix=t/
check 'keys are the paths below the folder' is "$("$kv" --target="$uri" list t/deep | cut -f 1)" \
  $'t/deep/er/est/empty\nt/deep/er/small\nt/deep/two'
touch "$tmp/tree/two"$'\n'lines
run "$kv" --target="$uri" load "$tmp/tree"
check 'a file whose name is no key is an error' has "$status-$err" '1-kv load: INVALID_ARGUMENT: the key has a control'
end server

# Thousands of files; over RDMA, which is mostly on an emulated machine, dozens.
loads "/usr/include${HAWSER_RDMA_ADDRESS:+/rdma}"
verdict
