#!/usr/bin/env bash
# The example programs and the tool, client and server under memcheck: over TCP, and over TLS.
cd "$TEST_SRCDIR/hawser" || exit 1
source examples/processes.sh
source tests/memcheck/options.sh
patience=120  # memcheck makes a program some twenty times slower.
tls=()

fail() {
  printf 'FAILED: %s\n' "$1"
  exit 1
}

# run PROGRAM ARGUMENT...: to its end, which has to be good.
run() {
  local status=0
  "${memcheck[@]}" "$@" "$target" "${tls[@]}" --timeout=60s >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
  ((status == 0)) || { cat "$tmp/out" "$tmp/err"; fail "exit status $status of: $*"; }
}

# end_server NAME: with what memcheck found in it.
end_server() {
  end "$1"
  [[ $status == 0 ]] || { cat "$tmp/$1.err"; fail "exit status $status of $1"; }
}

calls() {
  start_server echo "${memcheck[@]}" examples/echo/echo_server --listen=tcp://127.0.0.1:0 "${tls[@]}"
  "${memcheck[@]}" examples/echo/echo_client --target="$uri" --count=50 --size=13 --in_flight=4 "${tls[@]}" >"$tmp/out" 2>&1 ||
    { cat "$tmp/out"; fail 'echo_client'; }
  end_server echo

  start_server store "${memcheck[@]}" examples/kv/kv_server --listen=tcp://127.0.0.1:0 --perf "${tls[@]}"
  target=--target=$uri
  # Inline, pushed and READ; each ends within a word.
  for size in 13 20011 300007; do
    head -c "$size" /dev/urandom >"$tmp/value"
    run examples/kv/client/kv put "key/$size" --file="$tmp/value"
    run examples/kv/client/kv get "key/$size" --out="$tmp/copy"
    cmp "$tmp/value" "$tmp/copy" || fail "the copy of $size bytes differs"
  done
  run examples/kv/client/kv list key/
}

calls
# Every service that a server has, and health and its watch.
run tools/hawser/hawser list
run tools/hawser/hawser describe KeyValue
run tools/hawser/hawser call KeyValue.list '{"prefix": "key/"}'
run tools/hawser/hawser health
run tools/hawser/hawser status
run tools/hawser/hawser perf --duration=1ms --size=20011
# Server push.
start watch "${memcheck[@]}" examples/kv/client/kv "$target" watch log/ --count=2
await watch.err '^watching' >/dev/null || fail 'no watch'
run examples/kv/client/kv put log/1 tow
run examples/kv/client/kv del log/1
finish watch
[[ $status == 0 ]] || { cat "$tmp/watch.err"; fail "exit status $status of the watch"; }
end_server store

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=all \
  -addext subjectAltName=IP:127.0.0.1 -keyout "$tmp/all.key" -out "$tmp/all.pem" 2>"$tmp/openssl.err" ||
  fail "openssl: $(<"$tmp/openssl.err")"
tls=(--tls_certificate="$tmp/all.pem" --tls_key="$tmp/all.key" --tls_authorities="$tmp/all.pem")
calls
end_server store
