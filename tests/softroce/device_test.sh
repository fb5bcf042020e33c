#!/usr/bin/env bash
# The device that a test is told of exists, and its port is up.
set -euo pipefail

ibv_devinfo -d "$HAWSER_RDMA_DEVICE" | tee /dev/stderr | grep -q PORT_ACTIVE
