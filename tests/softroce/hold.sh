#!/usr/bin/env bash
# Makes the initrd of a guest that has files of this machine in its memory, and then needs no more of it:
#
#   hold.sh <the guest's initrd> <the initrd to make> <name>...
#
# A name is a file, a folder (with all files in it), or, without a slash, a program of $PATH. A link becomes the
# file that it names. Added to these are the libraries that they are linked with, what verbs loads at run time,
# and the programs that setup.sh and run_tests.sh start.
set -euo pipefail

initrd=$1 made=$(realpath "$2")
shift 2

# Without the guest's kernel and initrd, which are among the files of each test.
files_in() { find -L "$1" -type f ! -name vmlinux ! -name initrd; }

files=(/etc/{host.conf,hosts,ld.so.cache,nsswitch.conf,passwd} /etc/libibverbs.d/* /lib64/ld-linux-*
  /usr/lib/*/libibverbs.so.? /usr/lib/*/librdmacm.so.? /usr/lib/*/libibverbs/*.so)
for name in "$@" bash env ip mktemp mv rdma rm sh tc timeout; do
  if [[ $name != */* ]]; then
    files+=("$(PATH=$PATH:/usr/sbin:/sbin type -P "$name")") || { echo "hold.sh: no program '$name'" >&2; exit 1; }
    continue
  fi
  [[ $name == /* ]] || name=$PWD/$name
  if [[ -d $name ]]; then mapfile -t -O "${#files[@]}" files < <(files_in "$name"); else files+=("$name"); fi
done
# ldd fails on scripts, and prints the names of all others.
mapfile -t -O "${#files[@]}" files < <(ldd "${files[@]}" 2>/dev/null | grep -o '/[^ :]*')

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root=$tmp/held
mkdir -p "$root"/{usr/{bin,lib,lib64,sbin},tmp} "$root$PWD" "$root${TMPDIR:-/tmp}"
below=''  # Of a link to a folder there is a link, and the files are in that folder.
for link in /bin /lib /lib64 /sbin; do
  [[ ! -L $link ]] || { cp --no-dereference "$link" "$root" && below+="s|^$link/|$(realpath "$link")/|;"; }
done
for file in "${files[@]}"; do [[ ! -e $file ]] || printf '%s\n' "$file"; done |
  sed "$below" | sort --unique | xargs --delimiter='\n' cp --dereference --parents --target-directory="$root"
# The kernel unpacks an initrd that follows another one.
cp --dereference --no-preserve=mode "$initrd" "$made"
cd "$tmp"
find held | cpio --quiet --create --format=newc --owner=0:0 >>"$made"
