#!/usr/bin/env bash
# hawser list, describe, ping, health and doctor, against servers.
source tests/examples/checks.sh
hawser=tools/hawser/hawser

is_json() { python3 -c 'import json, sys; json.loads(sys.argv[1])' "$1"; }
field() { python3 -c 'import json, sys; print(eval("json.loads(sys.argv[1])" + sys.argv[2]))' "$1" "$2"; }
ask() { run "$hawser" "$1" --target="$uri" "${@:2}"; }
# compiles TEXT: capnp takes it.
compiles() {
  printf '%s\n' "$1" >"$tmp/described.capnp"
  external/hawser_system/bin/capnp compile --no-standard-import -o- "$tmp/described.capnp" >/dev/null
}

start_server server tests/tools/everything_server --listen="$any_port" --lie=truth

ask list
check 'services are listed' has "$out" 'everything.capnp:Everything'
check 'with their methods' has "$out" '  echo  idempotent'
ask list --json
check 'as JSON, too' is "$(field "$out" '["services"][1]["methods"][0]["name"]')" echo

ask describe
check 'without a name all is described' has "$out" 'interface Everything @0x'
check 'as text that capnp compiles' compiles "$out"
ask describe All.Inner
check 'so is one struct' has "$out" 'struct Inner @0x'
check 'with what it refers to' compiles "$out"
ask describe Everything.echo
check 'a method' is "$(head -n 1 <<<"$out")" '# echo @0 (all :All) -> (all :All) $idempotent'
check 'with its interface' compiles "$out"
ask describe everything.capnp:Color
check 'an enum' has "$out" 'enum Color @0x'
check 'with what it refers to, which is nothing' is "$(grep -c struct <<<"$out")" 0
ask describe Color
check 'a name that several end with is refused, with all of them' is "$status-$(grep -c 'everything.capnp:All.Inner.Color' <<<"$err")" 1-1
ask describe Evrything
check 'one that is not there with the nearest' has "$err" 'did you mean "Everything"?'
ask describe Color --json
check 'errors are JSON with --json' is "$(field "$out" '["error"]["code"]')" INVALID_ARGUMENT
ask describe --json
check 'and so is a description' has "$(field "$out" '["schema"]')" 'interface Everything'

ask ping --count=50
check 'ping says how long round trips take' has "$out" '50 round trips to '
check 'from the least to the most' has "$out" ' p99 '
ask ping --count=50 --json
check 'as JSON, too' is "$(field "$out" '["min_us"]' | grep -c '^[0-9]')" 1
check 'in order' is "$(python3 -c 'import json, sys; r = json.loads(sys.argv[1]); print(r["min_us"] <= r["median_us"] <= r["p99_us"] <= r["max_us"])' "$out")" True

ask health
check 'health says that the server serves' is "$status-$out" 0-serving
ask health --json
check 'as JSON, too' is "$(field "$out" '["status"]')" serving
ask health down
check 'what does not serve is exit status 1' is "$status-$out" '1-not serving'
ask health nothing
check 'so is a service that is not there' is "$status-$(grep -c 'for the health of nothing: .*unknown' <<<"$err")" 1-1
ask health --watch --count=2
check 'a watch prints each change' is "$out" $'serving\nnot serving'
check 'and has the exit status of the last' is "$status" 1
ask health later --watch --count=1
check 'if the server answers Unavailable it asks again' is "$status-$out-$(grep -c 'UNAVAILABLE: .* for the health of later: not yet; asking again' <<<"$err")" 0-serving-1
ask health --watch --count=1 --json
check 'as JSON, too' is "$status-$(field "$out" '["status"]')" 0-serving

ask doctor
check 'the doctor looks at this machine, and the way to a server' has "$out" 'handshake'
ask doctor --json
check 'as JSON, too' is_json "$(head -n 1 <<<"$out")"
end server
check 'none of these ends in disorder: the server has lost no client' is "$(grep -c 'was lost' "$tmp/server.err")" 0

start_server silent tests/tools/everything_server --lie=silent
ask health
check 'a server without health: what to do' is "$status-$(grep -c 'the server has no health service.*ServerOptions::health' <<<"$err")" 1-1
ask health --watch
check 'nor a watch' is "$status-$(grep -c 'the server has no health service' <<<"$err")" 1-1
ask ping --count=3
check 'which ping still measures' is "$status-$(grep -c 'refusals are timed' <<<"$err")" 0-1
end silent

# TLS: over TCP, whatever the other servers listen on.
new_key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
openssl req -x509 "${new_key[@]}" -days 1 -subj '/CN=authority' -keyout "$tmp/ca.key" -out "$tmp/ca.pem" 2>/dev/null
openssl req "${new_key[@]}" -keyout "$tmp/one.key" -out "$tmp/one.csr" -subj /CN=one -addext subjectAltName=IP:127.0.0.1 2>/dev/null
openssl x509 -req -in "$tmp/one.csr" -days 1 -CA "$tmp/ca.pem" -CAkey "$tmp/ca.key" -CAcreateserial -copy_extensions copyall \
  -out "$tmp/one.pem" 2>/dev/null
tls=(--tls_certificate="$tmp/one.pem" --tls_key="$tmp/one.key" --tls_authorities="$tmp/ca.pem")
start_server secure tests/tools/everything_server --lie=truth "${tls[@]}"
ask list "${tls[@]}"
check 'with a certificate a server with TLS is asked' is "$status-$(grep -c Everything <<<"$out")" 0-1
ask list
check 'without one it refuses' is "$status-$(grep -c '^hawser list: UNAUTHENTICATED: cannot connect to' <<<"$err")" 1-1
check 'and says which flags to give' has "$err" '; --tls_certificate, --tls_key and --tls_authorities give this program credentials'
ask list "${tls[@]}" --tls_key="$tmp/no.key"
check 'a file of ours that is missing is no matter of the network' is "$status-$(grep -c 'no.key: no such file' <<<"$err")-$(grep -c doctor <<<"$err")" 1-1-0
end secure

# A server that has a SPIFFE id and nothing else: no host would fit.
openssl req "${new_key[@]}" -keyout "$tmp/two.key" -out "$tmp/two.csr" -subj /CN=two \
  -addext subjectAltName=URI:spiffe://example.org/everything 2>/dev/null
openssl x509 -req -in "$tmp/two.csr" -days 1 -CA "$tmp/ca.pem" -CAkey "$tmp/ca.key" -CAcreateserial -copy_extensions copyall \
  -out "$tmp/two.pem" 2>/dev/null
start_server spiffe tests/tools/everything_server --lie=truth --tls_certificate="$tmp/two.pem" --tls_key="$tmp/two.key" \
  --tls_authorities="$tmp/ca.pem"
ask list "${tls[@]}" --tls_server_name=spiffe://example.org/everything
check 'a server is reached by the name that its certificate has' is "$status-$(grep -c Everything <<<"$out")" 0-1
ask list "${tls[@]}"
check 'without it not, and the error says which flag gives it' has "$err" 'and --tls_server_name is the name that it expects of the server'
ask list "${tls[@]}" --tls_server_name=spiffe://example.org/another
check 'nor by another' is "$status-$(grep -c '^hawser list: UNAUTHENTICATED: ' <<<"$err")" 1-1
ask list --tls_server_name=spiffe://example.org/everything
check 'a name without TLS is wrong usage' is "$status-$(grep -c 'tls_server_name is for TLS, which needs --tls_certificate' <<<"$err")" 2-1
end spiffe

ask ping
check 'a server that is gone is exit status 1' is "$status" 1
check 'with who, why, and what to try' has "$err" 'cannot connect to '
check 'which is the doctor' has "$err" 'hawser doctor --target='
ask list --json
check 'as JSON, too' is "$(field "$out" '["error"]["code"]')" UNAVAILABLE

verdict
