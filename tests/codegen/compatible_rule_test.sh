#!/usr/bin/env bash
# A capnp_compatible_test of schemas that are not compatible fails, and prints why with the places.
#
# Called by Bazel: compatible_rule_test.sh <the test>
set -uo pipefail

folder=tests/codegen/testdata/compatible
failed=0
output=$("$1" 2>&1) && { echo 'FAILED: the test passes'; failed=1; }
for expected in \
  "$folder/store.capnp:7: error: Store.del @0 was get in the released schema, where del was @1." \
  "$folder/store.capnp:8: error: Store.get @1 was del in the released schema, where get was @0." \
  "$folder/item.capnp:5: error: Item.size @1 is :UInt32, and was :UInt64 in the released schema."; do
  [[ $output == *"$expected"* ]] || { printf 'FAILED: not said: %s\n' "$expected"; failed=1; }
done
((failed == 0)) || printf '%s\n' "$output"
exit "$failed"
