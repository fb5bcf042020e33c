#!/usr/bin/env bash
# The first hour, with small numbers: each step is there, says what it did, and passes. A device that is not there fails each.
source tests/examples/checks.sh
first_hour=tests/softroce/first_hour.sh

run "$first_hour" "--device=$HAWSER_RDMA_DEVICE" "--address=$HAWSER_RDMA_ADDRESS" --contract='VerbsContractTest.*' --cycles=50 \
  --kills=1 --connects=5 --connections=10 --keepalive=500ms --duration=20ms
check 'all steps pass' is "$status" 0
check 'all are there' is "$(grep -c '^ *[0-9]* s  passed ' <<<"$out")" 8
check 'the doctor spoke' has "$out" "provider $HAWSER_RDMA_DEVICE: libibverbs has a provider, which opens it"
check 'the contract ran over the device' has "$out" '[  PASSED  ]'
check 'it says how many grants the peer has ended, over rxe none' has "$out" \
  'Windows: 50 grants were made, used and revoked; a SEND of the peer has ended 0 of them (SEND_WITH_INV)'
check 'clients were killed' has "$out" 'the server serves after 1 of its clients were killed'
check 'there are figures beside a raw queue pair' has "$out" 'SENDs of a raw queue pair'

run "$first_hour" --device=none_such "--address=$HAWSER_RDMA_ADDRESS" --contract='VerbsContractTest.*' --cycles=1 --kills=1 \
  --connects=1 --connections=1 --duration=1ms
check 'a device that is not there is none that passes' is "$status" 1
check 'the first step says so' has "$out" 'problem  devices none_such: HAWSER_RDMA_DEVICE names it, but it is not there'
run "$first_hour" --device=rxe0
check 'an address is needed' has "$err" 'give --device=NAME and --address=ADDRESS'
run "$first_hour" --devices=rxe0
check 'a wrong flag is named' has "$err" '--devices=rxe0: not known'

verdict
