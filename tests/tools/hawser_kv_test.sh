#!/usr/bin/env bash
# hawser against a server that knows nothing of it: the reflection and health that every Server has.
source tests/examples/checks.sh
hawser=tools/hawser/hawser

field() { python3 -c 'import json, sys; print(eval("json.loads(sys.argv[1])" + sys.argv[2]))' "$1" "$2"; }
ask() { run "$hawser" "$1" --target="$uri" "${@:2}"; }

start_server server examples/kv/kv_server --listen="$any_port"

ask list
check 'the services are listed' has "$out" 'kv.capnp:KeyValue'
check 'with those that every server has' has "$out" 'health.capnp:Health'
ask describe KeyValue.put
check 'a method is described' has "$out" 'put @0 (key :Text, value :Data) -> (revision :UInt64)'
ask call KeyValue.put '{"key": "tow", "value": "rope"}'
check 'a call changes the store' is "$status" 0
ask call kv.capnp:KeyValue.get '{"key": "tow"}' --json
check 'another one reads that' is "$(field "$out" '["value"]["base64"]')" "$(printf rope | base64)"
ask call KeyValue.get '{"key": "nothing"}'
check 'an error of the handler is exit status 1' is "$status-$(grep -c NOT_FOUND <<<"$err")" 1-1
ask health kv.capnp:KeyValue
check 'its health is known' is "$status-$out" 0-serving
ask health KeyValue --json
check 'by the end of its name, too' is "$status-$(field "$out" '["service"]')-$(field "$out" '["status"]')" 0-kv.capnp:KeyValue-serving
ask health --watch --count=1 KeyValue
check 'which may be watched' is "$status-$out" 0-serving
ask health Value
check 'and not by a part of a word' is "$status-$(grep -c 'for the health of Value: .*knows no service' <<<"$err")" 1-1
ask ping --count=20
check 'it answers pings' has "$out" '20 round trips to '
verdict
