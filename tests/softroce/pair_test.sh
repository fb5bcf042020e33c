#!/usr/bin/env bash
# Two guests reach each other by RDMA. A guest without power, frozen or cut off does not answer.
set -uo pipefail

answers='busybox ping -c 1 -W 1 $HAWSER_RDMA_PEER_ADDRESS >/dev/null'
until_it_answers="until $answers; do :; done"
until_it_does_not="while $answers; do :; done"

# Not over siw_link, because there rping's client sometimes hangs when its first tries are refused.
tests/softroce/pair.sh --wall=280 --timeout=240 --setup=rxe_link \
  --fault='await 1 up; tell 0 stop; await 1 down; tell 0 cont
           await 1 up_again; tell 1 set_link link off; await 1 down_again; tell 1 set_link link on
           await 1 up_for_the_last_time; tell 0 quit' \
  -- 'while :; do rping -s -C 10; done' "
    until rping -c -a \$HAWSER_RDMA_PEER_ADDRESS -C 10; do :; done && echo 'ok: rping over rxe_link'
    $until_it_answers; touch \$HAWSER_RUN/up; $until_it_does_not; touch \$HAWSER_RUN/down
    $until_it_answers; touch \$HAWSER_RUN/up_again && echo 'ok: a guest that was frozen answers again'
    $until_it_does_not; touch \$HAWSER_RUN/down_again
    $until_it_answers; touch \$HAWSER_RUN/up_for_the_last_time && echo 'ok: so does one whose link was cut'
    $until_it_does_not; echo 'ok: one without power answers no more'"
