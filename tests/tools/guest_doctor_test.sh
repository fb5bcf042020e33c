#!/usr/bin/env bash
# hawser-doctor where there is a RoCE device: what libibverbs and a real sysfs say. Breaks the device on the way, so it is
# for a guest only.
source tests/examples/checks.sh
doctor=tools/doctor/hawser-doctor
device=$HAWSER_RDMA_DEVICE
netdev=$(<"/sys/class/infiniband/$device/parent")
as_nobody=(setpriv --reuid=65534 --clear-groups)
not_ok() { grep -v '^ok ' <<<"$out" | grep -v '^warning  huge pages:' | grep -v '^warning  grants ' || true; }

run "$doctor"
check 'a device that works has no problem' is "$status-$(not_ok)" 0-
check 'its port is up' has "$out" "ok       port $device/1: ACTIVE / LinkUp, Ethernet (RoCE), "
check 'its active_mtu is known' has "$out" "ok       mtu $device/1: active_mtu 4096, netdev $netdev has mtu "
check 'the GID of its address is what rdma_cm takes' has "$out" \
  "is $HAWSER_RDMA_ADDRESS, RoCE v2, netdev $netdev: used for what binds to $HAWSER_RDMA_ADDRESS"
check 'its limits are told' has "$out" "ok       limits $device: a SEND of up to 6 entries (its max_sge is 32), 192 bytes inline, "
check 'its provider opens it' has "$out" "ok       provider $device: libibverbs has a provider, which opens it"
run "$doctor" --target="rdma://$HAWSER_RDMA_ADDRESS:1"
check 'rxe is said not to confine grants' has "$out" "warning  grants $device: no memory windows of type 2"
check 'the way to a server names port and GID' has "$out" ", which is $device/1, GID "
check 'nothing listens there' is "$status" 1
start_server server examples/echo/echo_server --listen="rdma://$HAWSER_RDMA_ADDRESS:7470"
run "$doctor" --target="$uri"
check 'a server is reached by RDMA' has "$out" "ok       handshake ${uri#rdma://}: done: protocol version 1, 32 slots"
check 'which is no problem' is "$status" 0
end server

check 'it says which device Hawser uses' has "$out" "ok       devices $device: used by Hawser, because HAWSER_RDMA_DEVICE names it"
run env HAWSER_RDMA_DEVICE="$HAWSER_RDMA_PEER_DEVICE" "$doctor"
check 'also if another is named' has "$out" "ok       devices $HAWSER_RDMA_PEER_DEVICE: used by Hawser"
run env -u HAWSER_RDMA_DEVICE "$doctor"
check 'or none' has "$out" "ok       devices $device: used by Hawser where no address says which: it is the first with an active port"

chmod 600 /dev/infiniband/*
run "${as_nobody[@]}" "$doctor"
check 'without the right to open it there is a problem' is "$status" 1
check 'that names the file' has "$out" 'problem  access /dev/infiniband/rdma_cm: cannot be opened'
run "${as_nobody[@]}" examples/echo/echo_server --listen="rdma://$HAWSER_RDMA_ADDRESS:0"
check 'a program is told so, too' has "$err" 'rxe0 cannot be opened: open(/dev/infiniband/uverbs0): permission denied (EACCES)'
start_server server "${as_nobody[@]}" examples/echo/echo_server --listen="auto://$HAWSER_RDMA_ADDRESS:0"
check 'or does without RDMA' has "$uri" 'tcp://'
check 'and says why' has "$(await server.err 'not over RDMA')" 'open(/dev/infiniband/uverbs0): permission denied (EACCES)'
run "${as_nobody[@]}" "$doctor" --target="auto://${uri#tcp://}"
check 'as the doctor finds' has "$out" "warning  connect ${uri#tcp://}: the address is routed, but: open RDMA device"
check 'who comes there by TCP' has "$out" "ok       handshake ${uri#tcp://}: done"
end server
chmod 666 /dev/infiniband/*
chmod 600 /dev/infiniband/uverbs1
export HAWSER_RDMA_DEVICE=rxe1
run "${as_nobody[@]}" "$doctor"
check 'if one cannot be opened, that one is not used' has "$out" 'problem  devices rxe1: HAWSER_RDMA_DEVICE names it, but librdmacm'
run "${as_nobody[@]}" examples/echo/echo_server --listen="rdma://$HAWSER_RDMA_PEER_ADDRESS:0"
check 'as a program says' has "$err" 'rxe1 cannot be opened: open(/dev/infiniband/uverbs1): permission denied (EACCES)'
export HAWSER_RDMA_DEVICE=$device
start_server server "${as_nobody[@]}" examples/echo/echo_server --listen="rdma://$HAWSER_RDMA_ADDRESS:0"
check 'and the other one is' has "$uri" 'rdma://'
end server
chmod 666 /dev/infiniband/*

ulimit -l 64
run "${as_nobody[@]}" "$doctor"
check 'so is a memlock limit of 64 KiB' has "$(not_ok)" 'problem  memlock: limit 64 KiB'

ip address flush dev "$netdev" scope global
run "$doctor"
check 'no IP address is a warning' has "$(not_ok)" "warning  gid $device/1:"
ip link set "$netdev" down
run "$doctor"
check 'a port that is down is a problem' is "$status-$(grep -c "^problem  port $device/1: not usable: DOWN" <<<"$out")" 1-1

verdict
