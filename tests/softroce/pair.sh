#!/usr/bin/env bash
# Runs two guests with a link between them, and breaks what is told:
#
#   pair.sh [option]... -- 'command of guest 0' 'command of guest 1'
#
#   --setup=rxe_link  or siw_link
#   --fault='...'     bash commands for this machine, run beside the guests; see below
#   --run=FOLDER      leaves a folder for each guest there, 0/ and 1/ (default: none)
#   others            as of guest.sh
#
# Guest 1 is the one that counts: its output and exit status are those of pair.sh. When it ends, guest 0 is turned off,
# whatever it does; its output is printed if guest 1 failed. Each has its own clock, so there is no --virtual_time.
#
# A guest finds the other's address in $HAWSER_RDMA_PEER_ADDRESS, 10.0.0.1 for guest 0; they start in any order, so a
# client tries until the server is there. In the fault,
#
#   await 1 connected           waits until guest 1 has made the file $HAWSER_RUN/connected
#   tell 0 quit                 takes the power from guest 0: it is gone at once
#   tell 0 stop; tell 0 cont    freezes it, and lets it go on where it was
#   tell 0 set_link link off    cuts its link; on: mends it
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
  # Datagrams over local sockets, so that neither guest has to be there first. An MTU of 4200 needs a card that allows it.
  HAWSER_NODE=$1 "$here/guest.sh" "${options[@]}" --run="$folder" \
    --qemu=-netdev \
    --qemu="dgram,id=link,local.type=unix,local.path=$run/$1.socket,remote.type=unix,remote.path=$run/$((1 - $1)).socket" \
    --qemu=-device --qemu="virtio-net-pci,netdev=link,mac=52:54:00:00:00:0$1,host_mtu=9000,romfile=" \
    --qemu=-chardev --qemu="pipe,id=monitor,path=$folder/monitor" \
    --qemu=-mon --qemu=chardev=monitor \
    -- bash -c "$2"
}

# Held open here for reading and writing, so that tell() waits for no QEMU that is not there. What the monitors answer
# stays in the pipes, which have room for a hundred commands.
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
