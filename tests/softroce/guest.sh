#!/usr/bin/env bash
# Runs one command in a guest whose kernel has software RDMA, with the files, folder and environment of the
# caller:
#
#   guest.sh [option]... -- command [argument]...
#
#   --setup=rxe       the RDMA devices to make first: rxe, rxe_pair, siw or none (README.md)
#   --smp=1           processors
#   --memory=1G
#   --virtual_time    the guest's clock counts instructions and skips waits, so that timeouts expire at once;
#                     implies one processor
#   --timeout=120     seconds of the guest's time that the command may take; 0: no limit, which is the default
#                     in virtual time
#   --wall=180        seconds of real time that all may take, with boot
#   --boot=60         seconds of real time until the command starts. A guest that takes longer is ended, and started
#                     once more with twice the time, then without this limit
#   --hold=NAME       a file, folder or program that the guest has in its memory from the start; may be repeated.
#                     Then it has these, what hold.sh adds to them, and no other files of this machine, and does
#                     not wait for it: virtual time needs that (README.md)
#   --run=FOLDER      a folder that the guest shares and may write to; its other writes are lost (default: none)
#   --qemu=ARGUMENT   one more argument for QEMU; may be repeated
#
# Exit status: the command's; 124: the timeout expired; 125: the guest did not start or died; then the end of
# its console is printed.
# Needs neither root nor KVM nor a network.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  echo "guest.sh: $1" >&2
  exit 125
}

setup=rxe smp=1 memory=1G timeout='' wall=180 boot=60 run='' clock=() held=() qemu=()
while (($#)); do
  case $1 in
    --setup=*) setup=${1#*=} ;;
    --smp=*) smp=${1#*=} ;;
    --memory=*) memory=${1#*=} ;;
    --virtual_time) clock=(-icount shift=2,sleep=off) ;;
    --hold=*) held+=("${1#*=}") ;;
    --timeout=*) timeout=${1#*=} ;;
    --wall=*) wall=${1#*=} ;;
    --boot=*) boot=${1#*=} ;;
    --run=*) run=${1#*=} ;;
    --qemu=*) qemu+=("${1#*=}") ;;
    --) shift && break ;;
    *) fail "no option '$1'; the options are in the head of $here/guest.sh" ;;
  esac
  shift
done
(($#)) || fail 'no command: guest.sh [option]... -- command [argument]...'

# Under Bazel the kernel is beside this file. Started by hand, this script uses Bazel's output folder.
kernel=$here/../../third_party/guest_kernel/vmlinux initrd=$here/initrd
if [[ ! -e $kernel ]]; then
  built=$here/../../bazel-out/host/bin
  kernel=$built/third_party/guest_kernel/vmlinux initrd=$built/tests/softroce/initrd
  [[ -e $kernel && -e $initrd ]] || fail 'no kernel to boot; build it: ./bazelw build //tests/softroce:guest'
fi

if [[ -z $run ]]; then
  run=$(mktemp -d "${TMPDIR:-/tmp}/guest.XXXXXX")
  trap 'rm -rf "$run"' EXIT
fi
mkdir -p "$run" && run=$(realpath "$run") && rm -f "$run/status" || fail "cannot use the folder $run"
[[ $run != *[[:space:],]* ]] || fail "the folder's path has a blank or a comma, which QEMU would misread: $run"

# A single emulated processor runs in one thread; several run in a thread each.
accelerator=tcg,thread=multi
((${#clock[@]})) && smp=1 accelerator=tcg,thread=single timeout=${timeout:-0}
timeout=${timeout:-120}

# What the guest writes to its console right before the command.
readonly started='guest.sh: the command starts'
{
  declare -px
  ((${#clock[@]})) && echo 'export HAWSER_VIRTUAL_TIME=1' || echo 'unset HAWSER_VIRTUAL_TIME'
  printf 'cd %q\n' "$PWD"
  printf 'source %q %q\n' "$here/setup.sh" "$setup"
  printf 'echo %q >/dev/console\n' "$started"
  printf 'exec timeout --kill-after=5 %q' "$timeout"
  printf ' %q' "$@"
  echo
} >"$run/command"

share=(
  -fsdev local,id=root,path=/,security_model=none,multidevs=remap,readonly=on -device virtio-9p-pci,fsdev=root,mount_tag=root
)
if ((${#held[@]})); then
  "$here/hold.sh" "$initrd" "$run/initrd" "$run/command" "$here/setup.sh" "${held[@]}" || fail 'hold.sh failed'
  initrd=$run/initrd share=()
fi

arguments=(
  -no-user-config -nodefaults -display none -no-reboot
  -machine q35 -accel "$accelerator" -smp "$smp" -m "$memory"
  # Without erms and fsrm: with them memcpy is `rep movsb`, which QEMU emulates byte by byte.
  -cpu max,-erms,-fsrm
  -kernel "$kernel" -initrd "$initrd"
  # A panic ends QEMU (panic=-1 reboots, -no-reboot exits). init starts the other processors. HAWSER_RUN goes to init's
  # environment.
  -append "maxcpus=1 console=ttyS0 quiet panic=-1 oops=panic tsc=reliable no_timer_check mitigations=off random.trust_cpu=on HAWSER_RUN=$run"
  -serial "file:$run/console"
  # The command's output goes straight to the output of this script. It uses file descriptors, because opening
  # /dev/stdout again would overwrite a file from its beginning.
  -device virtio-serial-pci
  -add-fd fd=3,set=3 -chardev file,id=out,append=on,path=/dev/fdset/3 -device virtserialport,nr=1,chardev=out
  -add-fd fd=4,set=4 -chardev file,id=err,append=on,path=/dev/fdset/4 -device virtserialport,nr=2,chardev=err
  "${share[@]}" -fsdev "local,id=run,path=$run,security_model=none,multidevs=remap" -device virtio-9p-pci,fsdev=run,mount_tag=run
)
# For a guest that does not start its command: QEMU reads commands from one pipe and answers in the other. This script has both
# open, so that no open waits.
arguments+=(-chardev "pipe,id=qemu,path=$run/qemu" -mon chardev=qemu)
open_pipes() {
  rm -f "$run"/qemu.{in,out}
  mkfifo "$run"/qemu.{in,out} && exec {questions}<>"$run/qemu.in" {answers}<>"$run/qemu.out" || fail "no pipes in $run"
}

# pause <seconds>
pause() { read -r -t "$1" <> <(:); }

has_started() { grep -qsF "$started" "$run/console"; }

# boot <seconds>: starts the guest, and waits until its command starts or the guest ends. Not for more than these seconds,
# unless they are 0.
boot() {
  local begin=$SECONDS
  open_pipes
  rm -f "$run"/{console,status}
  timeout --kill-after=5 $((wall > SECONDS ? wall - SECONDS : 1)) \
    qemu-system-x86_64 "${arguments[@]}" "${clock[@]}" "${qemu[@]}" </dev/null 3>&1 4>&2 &
  guest=$!
  until has_started || ! kill -0 "$guest" 2>/dev/null; do
    (($1 == 0 || SECONDS - begin < $1)) || return 1
    pause 0.2
  done
  return 0
}

# end_guest: for good, so that nothing of it runs beside another.
end_guest() {
  kill "$guest" 2>/dev/null
  while kill -0 "$guest" 2>/dev/null; do wait "$guest"; done
}

# where_it_is: the processors of the guest, which stands still from then on.
where_it_is() {
  local line
  printf '%s\n' stop 'info registers -a' >&"$questions"
  while read -r -t 2 line <&"$answers"; do [[ $line != *IP=* && $line != *CPU#* ]] || echo "${line%%$'\r'}"; done
}

# A guest that never came to its command was seen, once, on a busy machine (init says what may have been the reason). Nothing of
# the command has run then, so another guest can run it.
signalled='' guest=''
trap 'signalled=1; [[ -z $guest ]] || kill "$guest" 2>/dev/null' TERM INT HUP
for seconds in "$boot" $((2 * boot)) 0; do
  boot "$seconds" && break
  processors=$(where_it_is)
  # It may have been about to start the command. Then it goes on.
  has_started && echo cont >&"$questions" && break
  end_guest
  [[ -z $signalled ]] && ! has_started && ((SECONDS < wall)) || break
  {
    echo "guest.sh: the guest did not start its command within $seconds s, and is started again. Its processors:"
    echo "$processors"
    echo 'guest.sh: the end of its console:'
    tail -n 20 "$run/console"
  } >&2
done
wait "$guest"
ended=$?
# A signal to this script ends `wait` before the guest has ended.
while kill -0 "$guest" 2>/dev/null; do wait "$guest"; done
((SECONDS < wall)) || ended=124  # Also if it was ended for an attempt for which no time was left.
rm -f "$run"/qemu.{in,out}
((${#held[@]} == 0)) || rm -f "$run/initrd"

status=125
if [[ -s $run/status ]]; then
  status=$(<"$run/status")
  ((status != 124 || timeout == 0)) || echo "guest.sh: status 124, as of a command that took more than $timeout s" >&2
elif ((ended == 124 || ended == 137)); then
  status=124
  echo "guest.sh: the guest was still running after $wall s. The end of its console:" >&2
  tail -n 80 "$run/console" >&2
else
  echo "guest.sh: the guest ended without a status (QEMU's was $ended). The end of its console:" >&2
  tail -n 80 "$run/console" >&2
fi
exit "$status"
