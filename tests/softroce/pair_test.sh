#!/usr/bin/env bash
# Two guests reach each other by RDMA. A guest without power, frozen or cut off does not answer.
set -uo pipefail

failures=0
# check <what> <arguments of pair.sh>
check() {
  local what=$1
  shift
  if tests/softroce/pair.sh --wall=200 "$@"; then
    echo "ok: $what"
  else
    failures=$((failures + 1))
    echo "FAILED: $what"
  fi
}

answers='busybox ping -c 1 -W 1 $HAWSER_RDMA_PEER_ADDRESS >/dev/null'
until_it_answers="until $answers; do :; done"
until_it_does_not="while $answers; do :; done"
serve='while :; do rping -s -C 10; done'
client='until rping -c -a $HAWSER_RDMA_PEER_ADDRESS -C 10; do :; done'
# Not over siw_link, because there rping's client sometimes hangs when its first tries are refused.
check 'rping over rxe_link' --setup=rxe_link -- "$serve" "$client"

idle='while :; do read -r -t 1000 <> <(:); done'
check 'a guest without power answers no more' --fault='await 1 up; tell 0 quit' \
  -- "$idle" "$until_it_answers; touch \$HAWSER_RUN/up; $until_it_does_not"
check 'a guest that was frozen and a link that was cut heal' \
  --fault='await 1 up; tell 0 stop; await 1 down; tell 0 cont
           await 1 up_again; tell 1 set_link link off; await 1 down_again; tell 1 set_link link on' \
  -- "$idle" "$until_it_answers; touch \$HAWSER_RUN/up; $until_it_does_not; touch \$HAWSER_RUN/down
      $until_it_answers; touch \$HAWSER_RUN/up_again; $until_it_does_not; touch \$HAWSER_RUN/down_again
      $until_it_answers"

((failures == 0)) || { echo "$failures failed"; exit 1; }
