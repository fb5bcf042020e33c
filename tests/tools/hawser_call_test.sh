#!/usr/bin/env bash
# hawser call: JSON in and out, files, metadata, and what is wrong.
source tests/examples/checks.sh
hawser=tools/hawser/hawser

is_json() { python3 -c 'import json, sys; json.loads(sys.argv[1])' "$1"; }
# field JSON PATH: a value inside it, by Python's syntax.
field() { python3 -c 'import json, sys; print(eval("json.loads(sys.argv[1])" + sys.argv[2]))' "$1" "$2"; }
call() { run "$hawser" call --target="$uri" "$@"; }

start_server server tests/tools/everything_server --listen="$any_port" --lie=truth

call Everything.hello '{"name": "käse"}'
check 'JSON goes in and comes out' is "$status-$out" $'0-{\n  "text": "hello käse"\n}'
call everything.capnp:Everything.hello
check 'without JSON and with an empty stdin it says what is missing' has "$err" 'no JSON for everything.capnp:Base.hello came on stdin; {} leaves'
call Everything.hello ''
check 'JSON that is given and empty is wrong usage' is "$status-$(grep -c 'the JSON is empty; {} leaves' <<<"$err")" 2-1
call Everything.hello '{"quux": 1}'
check 'a name like none there is' has "$err" 'there is no field "quux". There is: name'
call hello '{}'
check 'a field that is left out has its default' is "$(field "$out" '["text"]')" 'hello you'
run bash -c "echo '{\"name\": \"stdin\"}' | $hawser call --target=$uri Everything.hello"
check 'stdin is read without JSON' has "$out" 'hello stdin'
run bash -c "echo '{\"name\": \"dash\"}' | $hawser call --target=$uri Everything.hello -"
check 'and with -' has "$out" 'hello dash'
call Everything.nothing
check 'a method without parameters needs no JSON' is "$status-$out" '0-{}'
call Everything.hello '{"name": "x"}' --metadata=tenant=blue --metadata=b=c=d
check 'metadata goes along' is "$(field "$out" '["text"]')" 'hello x tenant=blue b=c=d'

all='{"all": {"int64": "-9223372036854775808", "uint64": 18446744073709551615, "float64": "NaN", "text": "\u001b[2J\u202e", "data": {"base64": "AP8="}, "inners": [{"key": "a"}], "choice": {"pair": {"a": 1}}, "second": "s"}}'
call Everything.echo "$all"
check 'what is printed is JSON' is_json "$out"
check 'in which nothing is for the terminal' is "$(grep -c $'\x1b' <<<"$out")" 0
check 'integers of 64 bits are exact' is "$(field "$out" '["all"]["uint64"]')" 18446744073709551615
first=$out
call Everything.echo "$out"
check 'and goes in again' is "$out" "$first"
call Everything.echo '{"all": {"float32": 3.4028234663852886e38, "uint64": 18446744073709551615.0, "first": 4294967295}}'
first=$out
call Everything.echo "$out"
check 'also the greatest numbers' is "$status-$out" "0-$first"
call Everything.echo '{"all": {"uint64": 0.99999999999999999}}'
check 'a number that is not whole does not become one' has "$err" \
  'at .all.uint64: expected a whole number from 0 to 18446744073709551615 (UInt64), found the number 0.99999999999999999'
call Everything.echo "$all" --json
check '--json is one line' is "$(is_json "$out" && wc -l <<<"$out")" 1
call Everything.echo '{"all": {"data": "text"}}' --json
check 'in which Data is base64 always' is "$(field "$out" '["all"]["data"]["base64"]')" 'dGV4dA=='

# Files.
head -c 3000000 /dev/urandom >"$tmp/picture"
call Everything.named '{"text": "t"}' --in=picture="$tmp/picture" --in=inner.bytes="$tmp/picture" \
  --out=picture="$tmp/copy" --out=inner.bytes="$tmp/copy2"
check 'files go in and out' is "$status" 0
check 'with each byte' cmp "$tmp/picture" "$tmp/copy"
check 'also inside a group' cmp "$tmp/picture" "$tmp/copy2"
check 'the rest is printed' is "$(field "$out" '["size"]')" 3000000
check 'without what went into a file' is "$(grep -c picture <<<"$out")" 0
printf 'käse' >"$tmp/name"
call Everything.named '{}' --in=inner.name="$tmp/name" --out=inner.name="$tmp/name2"
check 'Text comes from a file as well' cmp "$tmp/name" "$tmp/name2"
call Everything.named '{}' --in=text="$tmp/picture"
check 'if it is UTF-8' is "$status-$(grep -c 'is not UTF-8, and the field is Text' <<<"$err")" 1-1
call Everything.named '{}' --in=pikture="$tmp/picture"
check 'a field that is not there is named with the nearest' has "$err" \
  'there is no field "pikture" in Everything.Params; did you mean "picture"? There are: text, picture'
call Everything.named '{}' --in=size="$tmp/picture"
check 'one that is no Data with its type' has "$err" '"size" is UInt64; only Data and Text go to and from files'
call Everything.named '{}' --in=picture=/no/such/file
check 'so is a file that is not there' has "$err" '--in=picture=/no/such/file: '
call Everything.named '{}' --out=picture=/no/such/folder/file
check 'and one that cannot be written' has "$err" '/no/such/folder/file'
call Everything.named '{}' --in=picture
check 'what is not FIELD=FILE is wrong usage' is "$status-$(grep -c 'that is not FIELD=FILE' <<<"$err")" 2-1

# What the server, or the call, says no to.
call Everything.fail '{"code": 5, "text": "no such \u001b[2J key"}'
check 'an error of the call is exit status 1' is "$status" 1
check 'with code, method and text, escaped' has "$err" \
  'hawser call: NOT_FOUND: everything.capnp:Everything.fail: no such \x1b[2J key'
call Everything.fail '{"code": 5, "text": "no"}' --json
check 'as JSON, too' is "$(field "$out" '["error"]["code"]')" NOT_FOUND
call Everything.sleep --timeout=200ms
check 'a call ends at its timeout' is "$status-$(grep -c DEADLINE_EXCEEDED <<<"$err")" 1-1

# JSON that does not fit: the path, what was expected, what is there, and what the method takes.
call Everything.echo '{"all": {"inners": [{}, {"key": 5}]}}'
check 'JSON that does not fit' is "$status" 1
check 'is named where' has "$err" 'at .all.inners[1].key: expected a string (Text), found the number 5'
check 'with what the method takes' has "$err" 'The method is echo @0 (all :All) -> (all :All)'
call Everything.echo '{"al": {}}'
check 'so is an unknown field' has "$err" 'there is no field "al"; did you mean "all"?'
call Everything.echo '{"all": {"color": "bleu"}}'
check 'and an enumerant' has "$err" 'found the string "bleu"; did you mean "blue"? The method is echo @0'
call Everything.echo '{"all": {"uint8": 1, "uint8": 2}}'
check 'a name twice' has "$err" 'the name "uint8" is there twice'
call Everything.echo '{"all": '
check 'JSON that is none' has "$err" 'line 1, column 9: expected a value, found the end'
call Everything.echo $'{"all": {"text": "\xff"}}'
check 'JSON that is not UTF-8' has "$err" 'byte 18 (0xff) is not UTF-8'
deep=$(printf '{"next": %.0s' {1..100})
call Everything.echo "{\"all\": {\"inner\": $deep"
check 'JSON that is too deep' has "$err" 'nested deeper than 64 levels'

# Names.
call Everything.ehco '{}'
check 'a method that does not exist: what does' has "$err" \
  'has no method "ehco"; did you mean "echo"? It has: echo, fail, nothing, named, sleep, hello2, hello'
call everything.capnp:Base.hello '{"name": "x"}'
check 'a method can be called by the interface that declares it' has "$out" 'hello x'
call Nothing.echo '{}'
check 'a service that does not exist: what does' has "$err" 'the server has no method "Nothing.echo"'
end server
check 'no call has ended in disorder: the server has lost no client' is "$(grep -c 'was lost' "$tmp/server.err")" 0

# A server without reflection, and servers that lie.
start_server silent tests/tools/everything_server --lie=silent
call Everything.hello '{}'
check 'a server without reflection: what to do' is "$status-$(grep -c 'the server has no reflection service.*ServerOptions::reflection' <<<"$err")" 1-1
end silent
start_server by_hand tests/tools/everything_server --lie='by hand'
call $'evil.capnp:Evil\x1b[2J.m' '{}'
check 'a service without a schema is not called, and the error says why' is "$status-$(grep -c 'has no schema of it, because its methods were added by hand' <<<"$err")" 1-1
end by_hand
for lie in endless none names group scope field offset; do
  start_server "$lie" tests/tools/everything_server --lie="$lie"
  call Evil.m '{}' --timeout=5s
  check "a server that lies ($lie) is refused" is "$status-$(grep -c '^hawser call: DATA_LOSS: cannot ' <<<"$err")" 1-1
  check 'with nothing for the terminal' is "$(grep -c $'\x1b' <<<"$out$err")" 0
  end "$lie"
done
for lie in prefix missing superclass; do
  start_server "$lie" tests/tools/everything_server --lie="$lie"
  run "$hawser" describe --target="$uri"
  check "one that is odd ($lie) is described" is "$status" 0
  check 'with nothing for the terminal' is "$(grep -c $'\x1b' <<<"$out$err")" 0
  call Evil.x '{}'
  check 'and an error about it has nothing, either' is "$status-$(grep -c $'\x1b' <<<"$out$err")" 1-0
  run "$hawser" list --target="$uri"
  check 'nor has the list' is "$status-$(grep -c $'\x1b\\|\x07' <<<"$out$err")" 0-0
  end "$lie"
done

verdict
