#!/usr/bin/env bash
# tidy.sh none|found <verdict> <source> <option of the compiler>...: an action of tidy.bzl. Fails unless clang-tidy finds
# no use after a move in the source, or, with `found`, one. A source that moves nothing is only compiled: like the others it
# has to include what it uses, which the build does not show, since each file has the common headers there.
set -euo pipefail
expected=$1 verdict=$2 source=$3
shift 3

for program in clang-14 clang-tidy-14; do
  command -v "$program" >/dev/null || {
    echo "tidy: no $program here: HAWSER_PACKAGES=develop ./bazelw info installs it" >&2
    exit 1
  }
done

# -w: the compiler's own warnings are gcc's, in the build.
options=("$@" -w -Wno-unknown-warning-option)
says=''
moves=$(grep --count 'std::move' "$source") || [[ $? == 1 ]]
if ((moves)); then
  # A header is reported only where a .cc uses it.
  status=0
  says=$(clang-tidy-14 --quiet '--checks=-*,bugprone-use-after-move' '--warnings-as-errors=*' "$source" -- "${options[@]}" 2>&1) ||
    status=$?
  # Anything else that stops it, such as an option that it does not know or a header that is not included, is no verdict.
  [[ $status == 0 || $says == *bugprone-use-after-move* ]] || {
    printf '%s\n' "$says" >&2
    exit 1
  }
  ((status != 0)) || says=''
else
  clang-14 -fsyntax-only "${options[@]}" -x c++ "$source"
fi

if [[ $expected == none && -n $says ]]; then
  printf '%s\n' "$says" >&2
  exit 1
elif [[ $expected == found && -z $says ]]; then
  echo "tidy: the use after a move that is planted in $source is not found" >&2
  exit 1
fi
>"$verdict"
