#!/usr/bin/env bash
# That nothing crosses but what the protocol's page says: see tap_test.py.
set -euo pipefail
cd "$TEST_SRCDIR/hawser"  # In a workspace that uses Hawser a test begins in another folder.
exec /usr/bin/python3 -B tests/rpc/protocol/tap_test.py rpc/PROTOCOL.md examples/kv/kv_server examples/kv/client/kv tools/hawser/hawser
