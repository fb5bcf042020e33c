#!/usr/bin/env bash
# echo_server and echo_client, as processes; over TCP, or over RDMA where there is HAWSER_RDMA_ADDRESS.
source tests/examples/checks.sh
echo_server=examples/echo/echo_server
echo_client=examples/echo/echo_client

# A device may have no IPv6 address. Then the second listener is like the first.
any_port6='tcp://[::1]:0'
[[ -z ${HAWSER_RDMA_ADDRESS:-} ]] || any_port6=${HAWSER_RDMA_ADDRESS6:+rdma://[$HAWSER_RDMA_ADDRESS6]:0}
any_port6=${any_port6:-$any_port}

start server "$echo_server" --listen="$any_port" --listen="$any_port6"
mapfile -t printed < <(await server.out '^listening on ' 2 | sed 's/^listening on //')
first=${printed[0]} second=${printed[1]}
check 'each address is printed' is "${first%:*} ${second%:*}" "${any_port%:*} ${any_port6%:*}"
check 'with its port' grep -qE '^[1-9][0-9]* [1-9][0-9]*$' <<<"${first##*:} ${second##*:}"

run "$echo_client" --target="$first" --message='ahoy, world'
check 'the message comes back' is "$out" 'ahoy, world'
check 'with exit status 0' is "$status" 0

run "$echo_client" --target="$second" --message='over IPv6'
check 'on each address' is "$out" 'over IPv6'

run "$echo_client" --target="$first" --count=2000 --size=100 --in_flight=8
check 'many calls say how fast they were' is "$status-${out/%2000 calls of 100 bytes in *calls\/s, p50 *p99 *p99.9 */good}" 0-good

run "$echo_client" --target="$first" --count=10 --size=4MiB --in_flight=2
check 'large messages too' is "$status" 0

run "$echo_server" --listen="$first"
check 'a port in use is an error' is "$status" 1
check 'that names the address' has "$err" "${first#*://}"

run "$echo_client" --message=x
check 'no target is wrong usage' is "$status" 2
check 'and says how it is right' has "$err" 'no --target: which server?
usage: echo_client'
run "$echo_client" --target="$first"
check 'neither message nor count is wrong usage' is "$status" 2
run "$echo_client" --target="$first" --message=x --count=3
check 'both are' is "$status" 2
run "$echo_client" --target="$first" --massage=x
check 'a flag that is not there is' is "$status-${err%%$'\n'*}" '2-echo_client: there is no flag --massage here'
run "$echo_server"
check 'a server without an address is' is "$status" 2
run "$echo_server" --listen=ftp://127.0.0.1:1
check 'a URI that we do not know is an error' is "$status" 1
run "$echo_client" --target=nonsense --message=x
check 'for the client too' is "$status" 1
run "$echo_client" --help
check 'help is no error' is "$status-${out%% *}" '0-usage:'

end server
check 'SIGTERM ends the server with 0' is "$status" 0

run "$echo_client" --target="$first" --message=x
check 'with nobody there a call fails' is "$status" 1
check 'and says why' has "$err" UNAVAILABLE

start server "$echo_server" --listen="$first"
check 'the port can be used again at once' await server.out "$first"

verdict
