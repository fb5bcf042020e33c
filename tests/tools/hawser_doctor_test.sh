#!/usr/bin/env bash
# hawser-doctor on the machine that runs the tests, with servers that are there and that are not.
source tests/examples/checks.sh
doctor=tools/doctor/hawser-doctor

# is_json TEXT: every line is an object with the members that --help promises.
is_json() {
  python3 -c '
import json, sys
for line in sys.argv[1].splitlines():
    finding = json.loads(line)
    assert sorted(finding) == ["advice", "check", "found", "level", "subject"], finding
    assert finding["level"] in ("ok", "warning", "problem"), finding
' "$1"
}

run "$doctor"
check 'every line says how bad it is' is "$(grep -cvE '^(ok      |warning |problem ) [a-z]' <<<"$out")" 0
if [[ -z $(ls /sys/class/infiniband 2>/dev/null) ]]; then
  check 'without RDMA it says what will be used' has "$out" 'no RDMA device'
  check 'which is TCP' has "$out" 'TCP will be used'
  check 'and that is no problem' is "$status" 0
  run "$doctor" --target=rdma://127.0.0.1:1
  check 'unless RDMA is asked for' is "$status-$(grep -c '^problem  devices: no RDMA device' <<<"$out")" 1-1
fi
run "$doctor" --json
check 'JSON is JSON' is_json "$out"

start_server server examples/echo/echo_server --listen=tcp://127.0.0.1:0
address=${uri#tcp://}
run "$doctor" --target="$uri"
at_server=$(grep -F "$address" <<<"$out")
check 'the name of a server is resolved' has "$at_server" "ok       resolve 127.0.0.1: $address"
check 'its address is routed' has "$at_server" "ok       route $address: goes out from 127.0.0.1 (lo)"
check 'it is connected to' has "$at_server" "ok       connect $address: connected by TCP"
check 'the handshake is done, and what was agreed is said' has "$at_server" \
  "ok       handshake $address: done: protocol version 1, 32 slots, receive buffer of 4096 bytes, messages up to 513 MiB"
run "$doctor" --target="auto://$address"
check 'auto:// comes as far' has "$out" "ok       handshake $address: done"
check 'whatever stood against RDMA' is "$status" 0
run "$doctor" --target="$uri" --json
check 'in JSON too' is_json "$out"
check 'with the handshake' has "$out" '"check": "handshake"'

# A server of something else. It answers whoever comes, until it is ended.
start stranger python3 -c '
import socket
listener = socket.create_server(("127.0.0.1", 0))
print("listening on", listener.getsockname()[1], flush=True)
while True:
    with listener.accept()[0] as peer:
        peer.sendall(b"220 mail.example ESMTP, and much more that is not for a client of Hawser to read\r\n")
'
port=$(await stranger.out '^listening on ')
run "$doctor" --target="tcp://127.0.0.1:${port##* }"
check 'what is no Hawser server is connected to' has "$out" 'ok       connect 127.0.0.1:'
check 'and comes no further' is "$status-$(grep -c '^problem  handshake 127.0.0.1:.*UNAVAILABLE' <<<"$out")" 1-1
end stranger

end server
run "$doctor" --target="$uri"
check 'a closed port is a problem' is "$status" 1
check 'that says how far it came' has "$out" "problem  connect $address: the address is routed, but: connect(): Connection refused"
run "$doctor" --target=tcp://no-such-host.invalid:1
check 'an unknown name is one' is "$status-$(grep -c '^problem  resolve no-such-host.invalid: ' <<<"$out")" 1-1
run "$doctor" --target=ftp://127.0.0.1:1
check 'a scheme that is none is one' has "$out" 'problem  connect 127.0.0.1:1: the address is routed, but: no fabric for'

run "$doctor" --massage
check 'a flag that is not there is wrong usage' is "$status-${err%%$'\n'*}" '2-hawser-doctor: there is no flag --massage here'
run "$doctor" --target=nonsense
check 'so is a target that is no address' is "$status" 2
run "$doctor" --json=yes
check 'so is a switch with a value' is "$status" 2
run "$doctor" word
check 'so is a word' is "$status" 2
run "$doctor" --help
check 'help is no error' is "$status-${out%% *}" '0-usage:'

verdict
