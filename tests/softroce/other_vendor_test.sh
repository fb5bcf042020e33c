#!/usr/bin/env bash
# Checks that with libother_vendor.so preloaded the device reports another vendor. Otherwise the tests that
# follow bind no windows, and test nothing. (A real device keeps its vendor.)
set -euo pipefail

vendor=$(ibv_devinfo -d "$HAWSER_RDMA_DEVICE" | sed -nE 's/^\s*vendor_id:\s*//p')
echo "$HAWSER_RDMA_DEVICE: vendor_id $vendor"
[[ $vendor == 0x* && $vendor != 0xffffff ]]
