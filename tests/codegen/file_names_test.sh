#!/usr/bin/env bash
# The plugin refuses a schema whose file, or whose imported file, #include cannot name, and takes all others.
#
# Called by Bazel: file_names_test.sh <capnp> <plugin>
set -uo pipefail

readonly capnp=$1 plugin=$PWD/$2
cd "$TEST_TMPDIR" || exit 1
failed=0

complain() {
  printf 'FAILED: %s\n' "$1"
  failed=1
}

# Makes the file $1 with schema text $2, and its code. The messages are in $messages.
compile() {
  mkdir -p "$(dirname "$1")" && printf '%s\n' "$2" >"$1" || exit 1
  rm -rf out && mkdir out
  messages=$("$OLDPWD/$capnp" compile -I. "-o$plugin:out" "$1" 2>&1)
}

readonly foo='@0xb1f7a20c94d8635e; interface Foo { tow @0 () -> (); }'
readonly bar='@0xb1f7a20c94d8635f; using F = import "%s"; interface Bar extends (F.Foo) {}'

bad=('quo"te' 'back\\slash' 'an>gle' $'new\nline' $'carriage\rreturn' 'trigraph??!' $'\xff')
for name in "${bad[@]}"; do
  compile "$name.capnp" "$foo" && complain "$name is not refused"
  [[ $messages == *'The file has a name that #include cannot name.'*'Rename it'* ]] || complain "$name: $messages"
  [[ -z $(find out -type f) ]] || complain "$name: it is refused, but there is a file"
done

for name in 'my schema' 'a+b' 'what?' $'\xc3\xa4'; do
  compile "$name.capnp" "$foo" || complain "$name is refused: $messages"
  [[ -s out/$name.rpc.h ]] || complain "$name: there is no header"
done

# A folder is in the #include of a schema that imports the file, only.
for name in 'an>gle' 'back\slash'; do
  compile "$name/foo.capnp" "$foo" || complain "$name/foo.capnp is refused: $messages"
  # shellcheck disable=SC2059  # It is a format.
  compile bar.capnp "$(printf "$bar" "/${name//\\/\\\\}/foo.capnp")" && complain "the import from $name is not refused"
  [[ $messages == *'bar.capnp:1: error: Bar extends Foo, whose file #include cannot name.'* ]] ||
    complain "the import from $name: $messages"
done
exit "$failed"
