#!/usr/bin/env bash
# Checks that the device named by HAWSER_RDMA_DEVICE exists, and that its port is up.
set -euo pipefail

ibv_devinfo -d "$HAWSER_RDMA_DEVICE" | tee /dev/stderr | grep -q PORT_ACTIVE
