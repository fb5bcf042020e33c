#!/usr/bin/env bash
# That nothing crosses but what the protocol's page says: see tap_test.py.
set -euo pipefail
cd "$TEST_SRCDIR/hawser"  # In a workspace that uses Hawser a test begins in another folder.
programs=(examples/kv/kv_server examples/kv/client/kv tools/hawser/hawser)
exec /usr/bin/python3 -B tests/rpc/protocol/tap_test.py rpc/PROTOCOL.md "${programs[@]}"
