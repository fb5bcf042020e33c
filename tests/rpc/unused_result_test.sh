#!/usr/bin/env bash
# A call whose result is not used is lost, because the result cancels it: the compiler warns at each "// warns" of
# unused_result.cc, and at no other line.
#   unused_result_test.sh unused_result.cc
set -euo pipefail

options=(-I.)
while read -r folder; do options+=("-I$folder"); done < <(find -L . -type d -path '*/_virtual_includes/*' -prune)
((${#options[@]} > 10)) || {
  echo "the headers are not where this test looks for them" >&2
  exit 1
}
if ! says=$("${CXX:-g++-12}" -std=c++20 -fsyntax-only -Wall "${options[@]}" "$1" 2>&1); then
  printf '%s\n' "$says" >&2
  exit 1
fi
expected=$(grep --line-number '// warns' "$1" | cut -d: -f1)
# "unused_result.cc:13:18: warning: ignoring returned value of type ..."
found=$(grep --extended-regexp --only-matching 'unused_result\.cc:[0-9]+:[0-9]+: warning: ignoring' <<<"$says" |
  cut -d: -f2 | sort --numeric-sort --unique)
if [[ $found != "$expected" ]]; then
  printf '%s\n' "$says" >&2
  diff <(echo "$expected") <(echo "$found") >&2
  exit 1
fi
echo "$(wc --lines <<<"$expected") lines warn"
