#!/usr/bin/env bash
# Runs tests in one guest and reports the result of each. Call it by hawser_guest_test() in guest_test.bzl.
#
#   guest_test.sh [--test_seconds=60] [--nics=LIBRARY] [--program=NAME]... [option of guest.sh]... -- test...
#
# A test is a path; in a guest mlx5@path is run as on that NIC, by the library of --nics, nic/preload.cc.
# --program: one of this machine that the tests start, for a guest in virtual time, which has only what it is given.
# Prints a line for each test, after the output of the failed ones. Exit status 0 if all passed, else 1.
# Writes JUnit's XML where Bazel expects it.
set -uo pipefail

# Bazel starts this script by a link in the package of the test.
if [[ -n ${TEST_SRCDIR:-} ]]; then here=$TEST_SRCDIR/hawser/tests/softroce; else here=$(cd "$(dirname "$0")" && pwd); fi

setup=rxe test_seconds=60 nics='' only_guest='' virtual='' programs=() options=()
while (($#)); do
  case $1 in
    --test_seconds=*) test_seconds=${1#*=} ;;
    --nics=*) nics=$PWD/${1#*=} ;;
    --program=*) programs+=("${1#*=}") ;;
    --) shift && break ;;
    *)
      options+=("$1")
      [[ $1 != --setup=* ]] || setup=${1#*=}
      [[ $1 != --virtual_time ]] || virtual=1
      ;;
  esac
  shift
done
(($#)) || { echo 'guest_test.sh: no tests' >&2; exit 1; }
[[ $setup == rxe || $setup == siw ]] || only_guest="the setup $setup"
tests=("$@")
if [[ $virtual ]]; then
  only_guest='virtual time'
  held=("${TEST_SRCDIR:-$here/run_tests.sh}" "${tests[@]}" "${programs[@]}")
  options+=("${held[@]/#/--hold=}")
fi

run=$(mktemp -d "${TEST_TMPDIR:-/tmp}/run.XXXXXX")
trap 'rm -rf "$run"' EXIT
if [[ -n ${HAWSER_RDMA_DEVICE:-} && -z $only_guest ]]; then
  # It is a NIC itself, or one by hand: each test once, as it is.
  mapfile -t tests < <(printf '%s\n' "${tests[@]}" | sed -E 's/^[a-z0-9_]+@//' | awk '!seen[$0]++')
fi
run_tests=(env "HAWSER_TEST_NIC_LIBRARY=$nics" "$here/run_tests.sh" "$run" "$test_seconds" "${tests[@]}")
ended='the guest ended'
if [[ -n ${HAWSER_RDMA_DEVICE:-} && -z $only_guest ]]; then
  ended='run_tests.sh ended'
  if [[ -z ${HAWSER_RDMA_ADDRESS:-} ]]; then
    # "link rxe0/1 state ACTIVE physical_state LINK_UP netdev eth0"
    interface=$(rdma link show "$HAWSER_RDMA_DEVICE/1" | sed -nE 's/.* netdev ([^ ]+).*/\1/p')
    HAWSER_RDMA_ADDRESS=$(ip -brief -4 address show dev "${interface:-none}" | sed -nE 's|^[^/]* ([0-9.]+)/.*|\1|p')
    [[ -n $HAWSER_RDMA_ADDRESS ]] || {
      echo "guest_test.sh: found no IPv4 address of $HAWSER_RDMA_DEVICE; set HAWSER_RDMA_ADDRESS" >&2
      exit 1
    }
    export HAWSER_RDMA_ADDRESS
  fi
  echo "on this machine's $HAWSER_RDMA_DEVICE, $HAWSER_RDMA_ADDRESS"
  "${run_tests[@]}"
else
  [[ -z ${HAWSER_RDMA_DEVICE:-} ]] || echo "in a guest in spite of HAWSER_RDMA_DEVICE, because of $only_guest"
  # Ends before $TEST_TIMEOUT, when Bazel would kill this script before it could print the results.
  "$here/guest.sh" --wall=$((${TEST_TIMEOUT:-300} - 10)) "${options[@]}" --timeout=0 --run="$run" -- "${run_tests[@]}"
  [[ -z ${TEST_UNDECLARED_OUTPUTS_DIR:-} ]] || cp "$run/console" "$TEST_UNDECLARED_OUTPUTS_DIR/"
fi

# verdict <exit status> <seconds>
verdict() {
  # If SIGKILL came before the timeout, the kernel sent it, because the guest has no memory left, or the test
  # itself did.
  if [[ $1 == 137 ]] && ((${2%.*} < test_seconds)); then
    echo 'SIGKILL; if the kernel sent it, the guest needs more memory'
    return
  fi
  case $1 in
    0) echo passed ;;
    unknown) echo "$ended while this test ran" ;;
    never) echo "not run, because $ended" ;;
    124 | 137) echo "still running after $test_seconds s" ;;
    *) if (($1 > 128)); then echo "SIG$(kill -l "$1")"; else echo "exit status $1"; fi ;;
  esac
}

# Escapes any bytes for the text of XML.
escape() { iconv -c -f utf-8 -t utf-8 | tr -d '\000-\010\013\014\016-\037' | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g; s/"/\&quot;/g'; }

summary='' failures=0 xml='<testsuites>'$'\n'
for n in "${!tests[@]}"; do
  name=${tests[n]}
  if [[ -e $run/$n.status ]]; then
    read -r status seconds <"$run/$n.status"
  elif [[ -e $run/$n.log ]]; then
    status=unknown seconds=0
  else
    status=never seconds=0
  fi
  xml+="<testsuite name=\"$name\" tests=\"1\"><testcase name=\"$name\" time=\"$seconds\">"
  if [[ $status == 0 ]]; then
    summary+=$(printf 'PASSED %7.1f s  %s' "$seconds" "$name")$'\n'
  else
    failures=$((failures + 1))
    why=$(verdict "$status" "$seconds")
    summary+=$(printf 'FAILED %7.1f s  %s: %s' "$seconds" "$name" "$why")$'\n'
    if [[ -e $run/$n.log ]]; then
      printf -- '---- %s: %s. Its output:\n' "$name" "$why"
      cat "$run/$n.log"
      printf -- '---- end of %s\n' "$name"
      why+=$'\n'$(<"$run/$n.log")
    fi
    xml+="<failure>$(escape <<<"$why")</failure>"
  fi
  xml+="</testcase></testsuite>"$'\n'
  # Copies the content of <testsuites> from GoogleTest's own report.
  [[ ! -s $run/$n.xml ]] || xml+=$(sed '/^<?xml/d; /<\/\?testsuites/d' "$run/$n.xml")$'\n'
done
printf '%s' "$summary"
[[ -z ${XML_OUTPUT_FILE:-} ]] || printf '%s</testsuites>\n' "$xml" >"$XML_OUTPUT_FILE"
((failures == 0))
