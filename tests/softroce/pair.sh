#!/usr/bin/env bash
# Runs two guests with a link between them, and injects a fault:
#
#   pair.sh [option]... -- 'command of guest 0' 'command of guest 1'
#
#   --setup=rxe_link  or siw_link
#   --fault='...'     bash commands for this machine, run beside the guests; see below
#   --run=FOLDER      keeps a folder for each guest there, 0/ and 1/ (default: none)
#   other options     as for guest.sh
#
# Guest 1 decides: its output and exit status are those of pair.sh. When it ends, this script turns guest 0
# off, and prints its output if guest 1 failed. Each guest has its own clock, so there is no --virtual_time.
#
# $HAWSER_RDMA_PEER_ADDRESS has the address of the other guest; guest 0 has 10.0.0.1. They start in any order,
# so a client tries until the server listens. In the fault,
#
#   await 1 connected           waits until guest 1 has made the file $HAWSER_RUN/connected
#   tell 0 quit                 turns the power of guest 0 off
#   tell 0 stop; tell 0 cont    freezes it, and resumes it
#   tell 0 set_link link off    cuts its link; on: repairs it
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
options=(--setup=rxe_link --smp=1 --memory=512M) run='' fault=''
while (($#)); do
  case $1 in
    --fault=*) fault=${1#*=} ;;
    --run=*) run=${1#*=} ;;
    --virtual_time) echo 'pair.sh: no --virtual_time: each guest would have its own' >&2; exit 125 ;;
    --) shift && break ;;
    *) options+=("$1") ;;
  esac
  shift
done
(($# == 2)) || { echo "pair.sh: give two commands, each one argument; see the head of $here/pair.sh" >&2; exit 125; }

if [[ -z $run ]]; then
  run=$(mktemp -d "${TMPDIR:-/tmp}/pair.XXXXXX")
  trap 'rm -rf "$run"' EXIT
fi
rm -rf "$run/0" "$run/1"
mkdir -p "$run/0" "$run/1"

tell() { echo "${*:2}" >"$run/$1/monitor.in"; }
await() { until [[ -e $run/$1/$2 ]]; do read -r -t 0.05 <&"$never"; done; }
mkfifo "$run/never" && exec {never}<>"$run/never"

# guest <0 or 1> <command>
guest() {
  local folder=$run/$1
  # Uses datagrams over local sockets, so that either guest may start first. An MTU of 4200 needs a card that
  # allows it.
  HAWSER_NODE=$1 "$here/guest.sh" "${options[@]}" --run="$folder" \
    --qemu=-netdev \
    --qemu="dgram,id=link,local.type=unix,local.path=$run/$1.socket,remote.type=unix,remote.path=$run/$((1 - $1)).socket" \
    --qemu=-device --qemu="virtio-net-pci,netdev=link,mac=52:54:00:00:00:0$1,host_mtu=9000,romfile=" \
    --qemu=-chardev --qemu="pipe,id=monitor,path=$folder/monitor" \
    --qemu=-mon --qemu=chardev=monitor \
    -- bash -c "$2"
}

# This script holds the pipes open for reading and writing, so that tell() does not wait for a QEMU that has
# ended. The answers of the monitors stay in the pipes, which have room for a hundred commands.
mkfifo "$run"/{0,1}/monitor.{in,out}
exec {monitor0}<>"$run/0/monitor.in" {monitor1}<>"$run/1/monitor.in"
guest 0 "$1" >"$run/0.log" 2>&1 &
peer=$!
guest 1 "$2" &
counts=$!
eval "$fault" &
breaks=$!
trap 'kill "$counts" "$peer" "$breaks" 2>/dev/null' TERM INT HUP
wait "$counts"
status=$?
kill "$breaks" 2>/dev/null
tell 0 quit
wait "$peer"
((status == 0)) || { echo '---- output of guest 0:'; cat "$run/0.log"; } >&2
exit "$status"
