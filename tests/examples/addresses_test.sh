#!/usr/bin/env bash
# What a server prints that listens on every address, or on auto://, and how it is reached. Needs an RDMA device.
source tests/examples/checks.sh
echo_server=examples/echo/echo_server
echo_client=examples/echo/echo_client
host=$HAWSER_RDMA_ADDRESS host6=${HAWSER_RDMA_ADDRESS6:-}

# serves URI LINE...: a server on URI prints these and nothing more, PORT for its port, which it leaves in $port.
serves() {
  start server "$echo_server" --listen="$1"
  port=$(await server.out '^listening on ' $(($# - 1)) | sed -n '1s/.*://p')
  check "who listens on $1 prints where" is "$(sed "s/:$port\$/:PORT/" "$tmp/server.out")" "$(printf '%s\n' "${@:2}")"
}

# reached URI..., unreached URI...
reached() {
  for target in "$@"; do
    run "$echo_client" --target="$target" --message=ahoy
    check "and is reached by $target" is "$status-$out" 0-ahoy
  done
}
unreached() {
  for target in "$@"; do
    run "$echo_client" --target="$target" --message=ahoy
    check "but not by $target" has "$status-$err" '1-echo_client: UNAVAILABLE: '
  done
}

serves rdma://0.0.0.0:0 'listening on rdma://0.0.0.0:PORT'
reached "rdma://$host:$port"
unreached "tcp://$host:$port" ${host6:+"rdma://[$host6]:$port"}
end server

serves auto://0.0.0.0:0 'listening on tcp://0.0.0.0:PORT' 'listening on rdma://0.0.0.0:PORT'
reached "rdma://$host:$port" "tcp://$host:$port" "auto://127.0.0.1:$port"
end server

serves auto://127.0.0.1:0 'listening on tcp://127.0.0.1:PORT'
reached "auto://127.0.0.1:$port"
end server

if [[ -n $host6 ]]; then
  serves 'rdma://[::]:0' 'listening on rdma://[::]:PORT'
  reached "rdma://[$host6]:$port"
  # An iWARP device listens as it likes: siw for IPv6 alone.
  if [[ ${HAWSER_RDMA_DEVICE:-} != siw* ]]; then
    reached "rdma://$host:$port"
    run "$echo_server" --listen="rdma://0.0.0.0:$port"
    check 'another server gets no port of all addresses' has "$status-$err" '1-'
    check 'which says why' has "$err" 'another listener'
  fi
  end server
  serves 'auto://[::]:0' 'listening on tcp://[::]:PORT' 'listening on rdma://[::]:PORT'
  reached "auto://[$host6]:$port" "auto://[::1]:$port"
  end server
fi

run "$echo_server" --listen=rdma://127.0.0.1:0
check 'nobody can listen on loopback' is "$status" 1
check 'which says why' has "$err" '(loopback has none'

verdict
