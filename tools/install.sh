#!/usr/bin/env bash
# Installs the tool `hawser`, which then needs no Bazel:
#
#   ./bazelw run //tools:install -- --prefix=$HOME/.local
#
#   PREFIX/bin/hawser
#   PREFIX/share/man/man1/hawser.1
#   PREFIX/share/bash-completion/completions/hawser
#
#   --prefix=DIR    where to; /usr/local if it is not given. A relative one starts from the current folder
#   --destdir=DIR   stands before each of these paths, for packages
#   --uninstall     removes these three files
#
# Exit status: 0; 1 if a file cannot be written or removed; 2 for wrong usage.
set -uo pipefail

readonly built=${BASH_SOURCE[0]%/*}/hawser/hawser
prefix=/usr/local
destdir=''
uninstall=''

fail() {
  printf 'install: %s\n' "$2" >&2
  exit "$1"
}

for argument in "$@"; do
  case $argument in
    --prefix=?*) prefix=${argument#*=} ;;
    --destdir=*) destdir=${argument#*=} ;;
    --uninstall) uninstall=1 ;;
    --help) sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) fail 2 "do not know what to do with \"$argument\"; there are --prefix=DIR, --destdir=DIR and --uninstall" ;;
  esac
done

# The shell expands no ~ behind --prefix=. Bazel runs programs in a folder of its own.
expand() {
  case $1 in
    \~ | \~/*) printf '%s' "$HOME${1#\~}" ;;
    '' | /*) printf '%s' "$1" ;;
    *) printf '%s' "${BUILD_WORKING_DIRECTORY:-$PWD}/$1" ;;
  esac
}
prefix=$(expand "$prefix")
destdir=$(expand "$destdir")
readonly files=(bin/hawser share/man/man1/hawser.1 share/bash-completion/completions/hawser)

if [[ $uninstall ]]; then
  for file in "${files[@]}"; do
    rm -f -- "$destdir$prefix/$file" || fail 1 "cannot remove $destdir$prefix/$file"
  done
  exit 0
fi

made=$(mktemp -d) || exit 1
trap 'rm -rf "$made"' EXIT
{ "$built" man >"$made/man" && "$built" completion bash >"$made/completion"; } || fail 1 "$built does not run"

# put MODE FILE PATH: as a whole or not at all, also over a program that is running.
put() {
  local path=$destdir$prefix/$3
  if ! { mkdir -p -- "${path%/*}" && install -m "$1" -- "$2" "$path.new" && mv -f -- "$path.new" "$path"; }; then
    rm -f -- "$path.new" 2>/dev/null
    fail 1 "cannot write $path; --prefix=DIR says where to, such as --prefix=\$HOME/.local"
  fi
  printf '%s\n' "$path"
}
put 755 "$built" "${files[0]}"
put 644 "$made/man" "${files[1]}"
put 644 "$made/completion" "${files[2]}"
[[ $destdir || :${PATH:-}: == *":$prefix/bin:"* ]] || printf 'install: %s is not in $PATH\n' "$prefix/bin" >&2
