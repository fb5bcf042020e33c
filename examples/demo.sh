#!/usr/bin/env bash
# Runs the example programs as separate processes: ./bazelw run //examples:demo
#
# Shows each command as a user would type it, and its output. Exit status 0: every step succeeded.

# `bazel run` starts this script in the folder of the programs. Started by hand, it finds them in the folder
# beside this file.
[[ -x examples/kv/kv_server ]] || cd "$0.runfiles/hawser" || exit 1
source examples/processes.sh

declare -A program_of=(
  [echo_server]=examples/echo/echo_server
  [echo_client]=examples/echo/echo_client
  [kv_server]=examples/kv/kv_server
  [kv]=examples/kv/client/kv
  [hawser]=tools/hawser/hawser
)

chapter() { printf '\n%s\n' "$1"; }
indented() { sed "s|^|    |; s|$tmp/||g"; }
# Prints a command as a user would type it.
say() {
  local word words=()
  for word in "${@//$tmp\//}"; do
    [[ $word == *' '* ]] && word="'$word'"
    words+=("$word")
  done
  printf '  $ %s\n' "${words[*]}"
}

fail() {
  printf '\nThe demo FAILED: %s\n' "$1" >&2
  exit 1
}

# background NAME PROGRAM ARGUMENTS...: starts a program that keeps running.
background() {
  say "${@:2}" '&'
  start "$1" "${program_of[$2]}" "${@:3}"
}

# serve NAME PROGRAM ARGUMENTS...: starts a server in the background; sets $uri.
serve() {
  background "$@"
  uri=$(await "$1.out" '^listening on ') || fail "$1 does not listen"
  indented <<<"$uri"
  uri=${uri#listening on }
}

# show STATUS REGEX PROGRAM ARGUMENTS...: runs a program to its end. It must exit with this status and print a
# match.
show() {
  local wanted_status=$1 wanted=$2 printed status=0
  say "${@:3}"
  printed=$("${program_of[$3]}" "${@:4}" 2>&1 </dev/null) || status=$?
  [[ -z $printed ]] || indented <<<"$printed"
  ((status == wanted_status)) || fail "exit status $status, not $wanted_status"
  ((status == 0)) || printf '    (exit status %s)\n' "$status"
  [[ $printed =~ $wanted ]] || fail "it should print: $wanted"
}

# expect NAME.out REGEX: waits until a program in the background has printed a match.
expect() { await "$1" "$2" | indented || fail "$1 should have: $2"; }

chapter 'Echo: a server and a client.'
serve echo echo_server --listen=tcp://127.0.0.1:0
show 0 '^ahoy$' echo_client --target="$uri" --message=ahoy
show 0 'calls/s' echo_client --target="$uri" --count=20000 --size=32 --in_flight=16
end echo
((status == 0)) || fail "echo_server ended with $status"

chapter 'A key-value store: small values, and a file that is sent from where it is read to, and kept where it arrives.'
serve store kv_server --listen=tcp://127.0.0.1:0 --status=0
target=--target=$uri
head -c 64M /dev/urandom >"$tmp/image"
show 0 '^revision 1$' kv "$target" put tow 'a rope'
show 0 '^a rope$' kv "$target" get tow
show 0 '^revision 2$' kv "$target" put image --file="$tmp/image"
show 0 '^$' kv "$target" get image --out="$tmp/copy"
cmp "$tmp/image" "$tmp/copy" || fail 'the copy is not the image'
printf '    (the same %s bytes)\n' "$(stat -c %s "$tmp/copy")"
show 0 $'image\t67108864\t2' kv "$target" list
show 1 'NOT_FOUND: no key "bow"' kv "$target" get bow
show 2 'usage' kv "$target" get

chapter 'One tool for any server: what it serves, a call with JSON, how long a call takes, and whether it is well.'
show 0 'kv.capnp:KeyValue' hawser list "$target"
show 0 'put @0 [(]key :Text, value :Data[)]' hawser describe "$target" KeyValue
show 0 '"value": "a rope"' hawser call "$target" KeyValue.get '{"key": "tow"}'
show 1 'did you mean "key"' hawser call "$target" KeyValue.get '{"kee": "tow"}'
show 0 'median' hawser ping "$target" --count=1000
show 0 '^serving$' hawser health "$target"

chapter 'It shows what it is doing: a page for people, and metrics for Prometheus.'
status_url=$(await store.out '^status on ') || fail 'kv_server has no status page'
status_url=${status_url#status on }
# fetch PATH: what the server answers to a browser.
fetch() {
  printf '  $ curl %s%s\n' "$status_url" "$1"
  local host=${status_url#http://}
  exec 9<>"/dev/tcp/${host%:*}/${host##*:}" || fail "nothing answers at $status_url"
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$1" >&9
  fetched=$(cat <&9)
  exec 9<&-
}
fetch /healthz
[[ $fetched == *$'\nserving'* ]] || fail 'it should be serving'
printf '    serving\n'
fetch /metrics
line=$(grep '^hawser_server_calls_total.*KeyValue.put.*OK' <<<"$fetched") || fail 'the puts are not counted'
printf '    %s\n' "$line"
fetch /
[[ $fetched == *'kv.capnp:KeyValue.get'* ]] || fail 'the page does not name the methods'
printf '    (an HTML page of %s bytes)\n' "${#fetched}"

chapter 'Server push: one process watches what another changes.'
background watch kv "$target" watch log/
expect watch.err '^watching'
show 0 '^revision 3$' kv "$target" put log/1 'set sail'
show 0 '^revision 4$' kv "$target" put log/2 'storm'
show 0 '^revision 5$' kv "$target" del log/1
printf '  what the watch has printed:\n'
expect watch.out $'^put\tlog/1\t8\t3'
expect watch.out $'^put\tlog/2\t5\t4'
expect watch.out $'^delete\tlog/1\t0\t5'

chapter 'The server is killed while a client reads values of 1 MiB.'
background reader kv "$target" bench --workload=c --records=16 --value_size=1MiB --operations=100000000
expect reader.out '^load'
end store KILL
printf '  $ kill -KILL (kv_server)\n'
finish reader
indented <"$tmp/reader.err"
[[ $status == 1 && $(<"$tmp/reader.err") == *UNAVAILABLE* ]] || fail "the reader ended with $status"
printf '    (exit status 1)\n'
show 1 UNAVAILABLE kv "$target" get tow

chapter 'It comes back at the same address, with nothing in it: the watch resumes by itself, and is told.'
serve store kv_server --listen="$uri"
expect watch.out $'^lost\tlog/'
show 0 '^revision 1$' kv "$target" put log/3 'new mast'
printf '  what the watch has printed:\n'
expect watch.out $'^put\tlog/3\t8\t1'
end store
((status == 0)) || fail "kv_server ended with $status"

chapter 'Without a call: a client finds values in memory of the server by itself, and the server counts no call for that.'
serve shared kv_server --listen=tcp://127.0.0.1:0 --one_sided
target=--target=$uri
show 0 '^revision 1$' kv "$target" put tow 'a rope'
show 0 '^a rope$' kv "$target" get tow --one_sided
show 0 'workload c: 10000 operations' kv "$target" bench --one_sided --workload=c --records=1000 --operations=10000
show 0 $'calls_total\t10[0-9][0-9]\n' kv "$target" stats
end shared
((status == 0)) || fail "kv_server ended with $status"

chapter 'TLS: an authority issues certificates. Everyone who has one may read, one of them may write.'
command -v openssl >/dev/null || fail 'there is no openssl, which makes the certificates: install the package openssl'
# issue NAME SUBJECT_ALT_NAME: a key and a certificate, NAME.key and NAME.pem.
issue() {
  printf '  (a certificate for %s)\n' "$2"
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$tmp/$1.key" -out "$tmp/$1.csr" \
    -subj "/CN=$1" -addext "subjectAltName=$2" 2>"$tmp/openssl.err" &&
    openssl x509 -req -in "$tmp/$1.csr" -days 1 -CA "$tmp/authority.pem" -CAkey "$tmp/authority.key" -CAcreateserial \
      -copy_extensions copyall -out "$tmp/$1.pem" 2>"$tmp/openssl.err" || fail "openssl: $(<"$tmp/openssl.err")"
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj '/CN=the demo' \
  -keyout "$tmp/authority.key" -out "$tmp/authority.pem" 2>"$tmp/openssl.err" || fail "openssl: $(<"$tmp/openssl.err")"
issue store IP:127.0.0.1
issue keeper URI:spiffe://example.org/keeper
issue guest URI:spiffe://example.org/guest
# as NAME: the flags with which a program shows that certificate.
as() { printf -- '--tls_certificate=%s\n--tls_key=%s\n--tls_authorities=%s\n' "$tmp/$1.pem" "$tmp/$1.key" "$tmp/authority.pem"; }
mapfile -t as_store < <(as store)
mapfile -t as_keeper < <(as keeper)
mapfile -t as_guest < <(as guest)
serve secure kv_server --listen=tcp://127.0.0.1:0 "${as_store[@]}" --writer=spiffe://example.org/keeper
target=--target=$uri
show 0 '^revision 1$' kv "$target" "${as_keeper[@]}" put tow 'a rope'
show 0 '^a rope$' kv "$target" "${as_guest[@]}" get tow
show 1 'PERMISSION_DENIED: .*you are URI:spiffe://example.org/guest' kv "$target" "${as_guest[@]}" put tow 'a chain'
printf '  and without a certificate:\n'
show 1 'UNAUTHENTICATED: .*it speaks TLS only' kv "$target" get tow
end secure
((status == 0)) || fail "kv_server ended with $status"

printf '\nEvery step went as it should.\n'
