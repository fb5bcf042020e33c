#!/usr/bin/env bash
# The protocol, by its page alone: see client.py.
set -euo pipefail
cd "$TEST_SRCDIR/hawser"  # In a workspace that uses Hawser a test begins in another folder.
exec /usr/bin/python3 -B tests/rpc/protocol/client_test.py rpc/PROTOCOL.md examples/echo/echo_server
