#!/usr/bin/env bash
# With other_vendor.so preloaded the device is another vendor's: else the tests that follow bind no windows, and show nothing.
# (A real device is what it is.)
set -euo pipefail

vendor=$(ibv_devinfo -d "$HAWSER_RDMA_DEVICE" | sed -nE 's/^\s*vendor_id:\s*//p')
echo "$HAWSER_RDMA_DEVICE: vendor_id $vendor"
[[ $vendor == 0x* && $vendor != 0xffffff ]]
