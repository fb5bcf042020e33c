#!/usr/bin/env bash
# Finds what is used after it was moved from: tests/clang_tidy.sh [file...], with paths from Hawser's root. Without
# a file it looks at every .cc outside tests/ that moves. Exit status 0 if it finds nothing. Leaves
# compile_commands.json in the root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v clang-tidy-14 >/dev/null || {
  echo 'clang_tidy: no clang-tidy-14 here: HAWSER_PACKAGES=develop ./bazelw version installs it' >&2
  exit 2
}

# No headers but those that a .cc shows to be wrong; -w: the compiler's own warnings are gcc's, in the build.
tidy=(clang-tidy-14 --quiet '--checks=-*,bugprone-use-after-move' '--warnings-as-errors=*' --extra-arg=-w)

# Silence says something only if the check finds what it is for.
planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
cat >"$planted/planted.cc" <<'END'
#include <utility>
struct Options {
  int* runtime;
  Options(Options&&);
};
int Connect(int runtime, Options options);
int ConnectAuto(Options options) { return Connect(*options.runtime, std::move(options)); }
END
if said=$("${tidy[@]}" "$planted/planted.cc" -- -std=c++20 2>&1) || [[ $said != *bugprone-use-after-move* ]]; then
  printf 'clang_tidy: a planted use after a move is not found:\n%s\n' "$said" >&2
  exit 1
fi

./bazelw run --noshow_progress --color=no --curses=no --ui_event_filters=-info //tools:compile_commands

if (($#)); then
  printf '%s\0' "$@"
else
  # Not what needs packages that bazelw does not install.
  git grep -zl 'std::move' -- '*.cc' ':!:tests' ':!:third_party' ':!:examples/outside' \
    ':!:bench/peers/grpc.cc' ':!:bench/peers/thrift.cc'
fi | xargs -0 -n 4 -P "$(nproc)" "${tidy[@]}" -p . 2> >(grep -vE '^[0-9]+ warnings? generated' >&2)
