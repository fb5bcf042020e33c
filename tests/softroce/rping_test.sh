#!/usr/bin/env bash
# Two processes connect by the connection manager and READ and WRITE each other's memory. If there is a peer
# device, their messages cross the link between the two devices.
set -euo pipefail

device=${HAWSER_RDMA_PEER_DEVICE:-$HAWSER_RDMA_DEVICE}
address=${HAWSER_RDMA_PEER_ADDRESS:-$HAWSER_RDMA_ADDRESS}
rounds=10

sent() { ip -statistics -json link show dev veth0 | sed -E 's/.*"tx":\{"bytes":[0-9]+,"packets":([0-9]+).*/\1/'; }
[[ -z ${HAWSER_RDMA_PEER_DEVICE:-} ]] || before=$(sent)

rping -s -a "$address" -C "$rounds" &
server=$!
until rdma resource show cm_id link "$device" | grep -q LISTEN; do
  kill -0 "$server" || { echo 'the server ended before it listened'; exit 1; }
done
rping -c -v -a "$address" -I "$HAWSER_RDMA_ADDRESS" -C "$rounds" | tee /dev/stderr | grep -c 'ping data' | grep -qx "$rounds"
wait "$server"

if [[ -n ${HAWSER_RDMA_PEER_DEVICE:-} ]]; then
  after=$(sent)
  echo "$((after - before)) packets crossed the link"
  ((after - before >= 4 * rounds))
fi
