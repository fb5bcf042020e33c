#!/usr/bin/env bash
# A process opens the RDMA libraries only when it uses RDMA: the same binary runs where they are not installed.
source tests/examples/checks.sh
programs=(examples/echo/echo_server examples/echo/echo_client examples/kv/client/kv examples/kv/kv_server)
rdma='lib(ibverbs|rdmacm)'

for program in "${programs[@]}"; do
  needed=$(readelf --dynamic --wide "$program" | grep '(NEEDED)')
  check "readelf sees what $program needs" has "$needed" '[libc.so.'
  check 'and RDMA is not among it' is "$(grep -E "$rdma" <<<"$needed")" ''
done

# mapped NAME: the RDMA libraries in the process.
mapped() { grep -oE "$rdma\.so" "/proc/${pid_of[$1]}/maps" | sort -u | xargs; }

start_server server examples/echo/echo_server --listen=tcp://127.0.0.1:0
run examples/echo/echo_client --target="$uri" --message=ahoy
check 'a server on TCP answers' is "$status-$out" 0-ahoy
check 'without the RDMA libraries' is "$(mapped server)" ''
end server

# The check above would detect them: a process that may use RDMA looks for a device, even where there is none.
start_server server examples/echo/echo_server --listen=auto://127.0.0.1:0
check 'a server on auto:// has opened them' is "$(mapped server)" 'libibverbs.so librdmacm.so'
end server

verdict
