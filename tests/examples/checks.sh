# shellcheck shell=bash
# Sourced by the tests of the example programs: runs a program to its end, and checks what came of it.

source examples/processes.sh

# Where servers listen: over TCP or, where there is HAWSER_RDMA_ADDRESS, over RDMA.
any_port=tcp://127.0.0.1:0
[[ -z ${HAWSER_RDMA_ADDRESS:-} ]] || any_port=rdma://$HAWSER_RDMA_ADDRESS:0

failures=0

# run COMMAND...: leaves $status, $out and $err.
run() {
  status=0
  out=$("$@" 2>"$tmp/stderr" </dev/null) || status=$?
  err=$(<"$tmp/stderr")
}

# check WHAT COMMAND...: the command's success is what the test asks for.
check() {
  local what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    failures=$((failures + 1))
    printf 'FAILED: %s\n  wanted: %s\n  exit status: %s\n  stdout: %.2000s\n  stderr: %.2000s\n' "$what" "$*" "${status-}" \
      "${out-}" "${err-}"
  fi
}
is() { [[ $1 == "$2" ]]; }
has() { [[ $1 == *"$2"* ]]; }
at_most() { (($1 <= $2)); }

# At the end of a test.
verdict() {
  ((failures == 0)) || { echo "$failures failed"; exit 1; }
}
