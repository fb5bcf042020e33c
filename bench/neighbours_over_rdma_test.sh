#!/usr/bin/env bash
# An honest client beside clients that are stopped in the middle of a put, over the device $HAWSER_RDMA_DEVICE: no call of its is
# lost, and the server's memory is back once they are gone. Over TCP the bench's own test shows the same.
set -euo pipefail
"$(dirname "$0")/neighbours" --address="rdma://${HAWSER_RDMA_ADDRESS:?is not set: what address the device has}:0" \
  --kinds=stopped_process --counts=3 --stopped_put_bytes=33554432 --put_bytes=262144 --seconds=1
