#!/usr/bin/env bash
# The program behind capnp_compatible_test: what it says of two schemas, and of files that it cannot compare.
#
# Called by Bazel: compatible_program_test.sh <capnp> <capnp-compatible>
set -uo pipefail

readonly capnp=$1 compatible=$PWD/$2
failed=0

complain() {
  printf 'FAILED: %s\n' "$1"
  failed=1
}

# request <name>: writes a schema from standard input to $TEST_TMPDIR/<name>.capnp, and compiles it into
# <name>.request there.
request() {
  cat >"$TEST_TMPDIR/$1.capnp"
  "$capnp" compile -Icodegen --src-prefix="$TEST_TMPDIR" -o- "$TEST_TMPDIR/$1.capnp" >"$TEST_TMPDIR/$1.request" ||
    complain "$1.capnp does not compile"
}

# expect <exit status> <text> <released> <next>: runs the program on two files of $TEST_TMPDIR. The text is all of
# its output or, if it ends with "...", how that begins.
expect() {
  local output status=0
  output=$(cd "$TEST_TMPDIR" && "$compatible" "${@:3}" 2>&1) || status=$?
  ((status == $1)) || complain "$*: exit status $status"
  if [[ $2 == *... ]]; then
    [[ $output == "${2%...}"* ]] || complain "$*: $output"
  else
    [[ $output == "$2" ]] || complain "$*: $output"
  fi
}


request released <<'END'
@0xc6a81f3b7e02d594;
interface KeyValue {
  get @0 (key :Text) -> (value :Data);
  del @1 (key :Text) -> (value :Data);
}
END
request next <<'END'
@0xc6a81f3b7e02d594;
interface KeyValue {
  # A comment, and a method.
  get @0 (key :Text) -> (value :Data);
  del @1 (key :Text) -> (value :Data);
  put @2 (key :Text, value :Data);
}
END
request swapped <<'END'
@0xc6a81f3b7e02d594;
interface KeyValue {
  del @0 (key :Text) -> (value :Data);
  get @1 (key :Text) -> (value :Data);
}
END
request other <<'END'
@0xd6a81f3b7e02d594;
interface Echo {}
END
: >"$TEST_TMPDIR/empty.request"
printf 'interface KeyValue {}' >"$TEST_TMPDIR/text.request"
head -c 64 "$TEST_TMPDIR/next.request" >"$TEST_TMPDIR/cut.request"
head -c 4096 /dev/zero >"$TEST_TMPDIR/zeros.request"

expect 0 '' released.request next.request
expect 1 'swapped.capnp:3: error: KeyValue.del @0 was get in the released schema, where del was @1.
  A released client that calls get runs del on a server of this schema; a client of this schema that calls del runs get on a released server. Both may see OK.
  Instead: give del its released ordinal, @1. If it means the same and only its name has changed, say so: del @0 ... $Hawser.renamedFrom("get").
swapped.capnp:4: error: KeyValue.get @1 was del in the released schema, where get was @0.
  A released client that calls del runs get on a server of this schema; a client of this schema that calls get runs del on a released server. Both may see OK.
  Instead: give get its released ordinal, @0. If it means the same and only its name has changed, say so: get @1 ... $Hawser.renamedFrom("del").' \
  released.request swapped.request
expect 2 'capnp-compatible: other.capnp is no version of next.capnp: their ids differ, @0xd6a81f3b7e02d594 and @0xc6a81f3b7e02d594, and no type of the one has a name or an id of the other. Was the wrong file given as the released one?' \
  other.request next.request
expect 2 'capnp-compatible: cannot open none.request: No such file or directory' none.request next.request
expect 2 'capnp-compatible: empty.request is empty: did `capnp compile -o-`, which writes it, fail?' empty.request next.request
for bad in text cut zeros; do
  expect 2 "capnp-compatible: $bad.request is not what \`capnp compile -o- foo.capnp\` writes: ..." "$bad.request" next.request
  expect 2 "capnp-compatible: $bad.request is not what \`capnp compile -o- foo.capnp\` writes: ..." next.request "$bad.request"
done
expect 2 'usage: capnp-compatible <released> <next>...' next.request

exit "$failed"
