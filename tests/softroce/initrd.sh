#!/usr/bin/env bash
# Packs the initrd of the guest: initrd.sh <busybox> <init> <modules.tar> <initrd>
set -euo pipefail

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp"/{bin,dev,host,modules,proc,root,sys,written}
cp --dereference "$1" "$tmp/bin/busybox"
cp --dereference "$2" "$tmp/init"
tar --extract --file "$3" --directory "$tmp/modules"
chmod 755 "$tmp/init" "$tmp/bin/busybox"
find "$tmp" -exec touch --date=@0 {} +
initrd=$(realpath "$4")
cd "$tmp"
find . | LC_ALL=C sort | cpio --quiet --create --format=newc --owner=0:0 --reproducible >"$initrd"
