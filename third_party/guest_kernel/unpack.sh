#!/usr/bin/env bash
# Makes the guest's kernel of the packages that fetch.sh got:
#
#   unpack.sh <folder of packages> <vmlinux> <modules.tar> <module>...
#
# modules.tar has the named modules and those that they need, and `order`, which lists them in the order of loading.
set -euo pipefail

packages=$1 vmlinux=$2 modules=$3
shift 3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

for package in image headers headers_common kbuild source; do dpkg-deb --extract "$packages/$package.deb" "$tmp"; done
release=$(ls "$tmp/lib/modules")
tar --extract --directory "$tmp" --strip-components=1 --file "$tmp"/usr/src/linux-source-*.tar.xz \
  --wildcards '*/scripts/extract-vmlinux' '*/drivers/infiniband/sw/siw'

# QEMU boots the bare kernel too, and under emulation the compressed one takes 3 s to unpack itself.
bash "$tmp/scripts/extract-vmlinux" "$tmp/boot/vmlinuz-$release" >"$vmlinux"

# Software iWARP (siw) is in the kernel's source, but Debian leaves it out of its modules.
headers=$tmp/usr/src/linux-headers-$release
sed -i "s|/usr/src/|$tmp/usr/src/|" "$headers/Makefile"  # The one absolute path there.
make --silent -C "$headers" M="$tmp/drivers/infiniband/sw/siw" CONFIG_RDMA_SIW=m modules >&2
mkdir "$tmp/lib/modules/$release/extra"
strip --strip-debug -o "$tmp/lib/modules/$release/extra/siw.ko" "$tmp/drivers/infiniband/sw/siw/siw.ko"
/sbin/depmod -b "$tmp" "$release"

mkdir "$tmp/chosen"
touch "$tmp/chosen/order"
for module in "$@"; do
  # Lines are "insmod <file>" in the order of loading, or "builtin <name>".
  /sbin/modprobe --dirname "$tmp" --set-version "$release" --show-depends "$module" | while read -r verb file _; do
    [[ $verb == insmod ]] || continue
    name=$(basename "${file%.xz}")
    [[ ! -e $tmp/chosen/$name ]] || continue
    if [[ $file == *.xz ]]; then xz -dc "$file"; else cat "$file"; fi >"$tmp/chosen/$name"
    echo "$name" >>"$tmp/chosen/order"
  done
done
tar --create --file "$modules" --directory "$tmp/chosen" --sort=name --mtime=@0 --owner=0 --group=0 .
