#!/usr/bin/env bash
# hawser against servers that lie on purpose: it ends with an error, and soon.
source tests/examples/checks.sh
hawser=tools/hawser/hawser

start_server offset tests/tools/everything_server --listen="$any_port" --lie=offset
run "$hawser" call --target="$uri" Evil.m '{"f": 5}'
check 'a field beyond its struct is refused' is "$status-$(grep -c 'DATA_LOSS.*a field lies outside' <<<"$err")" 1-1
end offset

start_server methods tests/tools/everything_server --listen="$any_port" --lie=methods
run "$hawser" list --target="$uri"
check 'very many methods are refused' is "$status-$(grep -c 'RESOURCE_EXHAUSTED.*more than 100000 methods' <<<"$err")" 1-1
end methods

start_server services tests/tools/everything_server --listen="$any_port" --lie=services
run "$hawser" list --target="$uri"
check 'so are very many services' is "$status-$(grep -c 'RESOURCE_EXHAUSTED.*more than 10000 services' <<<"$err")" 1-1
end services

# One deadline for all calls: otherwise these are 150,000,000 calls, each of which is answered at once.
start_server trickle tests/tools/everything_server --listen="$any_port" --lie=trickle
for command in describe 'call Evil.m {}'; do
  # shellcheck disable=SC2086 # Words.
  run timeout 30 "$hawser" $command --target="$uri" --timeout=300ms
  check "a server that answers without end is left at the timeout ($command)" is \
    "$status-$(grep -c 'DEADLINE_EXCEEDED: cannot fetch the schema' <<<"$err")" 1-1
done
end trickle

verdict
