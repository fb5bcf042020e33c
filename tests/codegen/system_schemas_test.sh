#!/usr/bin/env bash
# Schemas that were not written for Hawser: those that Cap'n Proto installs. What the plugin makes of each compiles, or
# the plugin says why not.
#
# Called by Bazel: system_schemas_test.sh <capnp> <plugin>
set -uo pipefail

readonly capnp=$1 plugin=$2 include=/usr/include
failed=0

complain() {
  printf 'FAILED: %s\n' "$1"
  failed=1
}

# The compiler puts the folder of the installed foo.capnp.h in the place of the one that we generate into.
compiles() {
  "${CXX:-g++-12}" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -x c++ -I"$include/capnp" "$TEST_TMPDIR/$1"
}

schemas=0
for schema in "$include"/capnp/*.capnp; do
  ((++schemas))
  name=${schema#"$include/"}
  messages=$("$capnp" compile --src-prefix="$include" "-o./$plugin:$TEST_TMPDIR" "$schema" 2>&1)
  status=$?
  case $name in
    capnp/persistent.capnp)
      ((status != 0)) || complain "$name has a generic interface and is not refused"
      [[ $messages == *'Persistent is generic'*'Instead:'* ]] || complain "$name: $messages"
      ;;
    *)
      ((status == 0)) || complain "$name: $messages"
      compiles "${name%.capnp}.rpc.c++" || complain "$name: its code does not compile"
      ;;
  esac
done
((schemas >= 6)) || complain "only $schemas schemas in $include/capnp"
exit "$failed"
