# shellcheck shell=bash
# Sourced by the tests of the scripts in the root: what a script that ran among fake programs printed, returned and called.

failures=0

# check <what> <command>...: the command's success is what the test asks for. Shows $status, $output and $calls if it fails.
check() {
  local what=$1
  shift
  if "$@"; then
    echo "ok: $what"
  else
    failures=$((failures + 1))
    printf 'FAILED: %s\n  exit status: %s\n  output: %s\n  calls: %s\n' "$what" "$status" "$output" "$calls"
  fi
}
is() { [[ $1 == "$2" ]]; }
has() { [[ $1 == *"$2"* ]]; }
lacks() { [[ $1 != *"$2"* ]]; }

# At the end of a test.
verdict() {
  ((failures == 0)) || { echo "$failures failed"; exit 1; }
}
