#!/usr/bin/env bash
# Downloads Debian's kernel and what building one more driver for it takes, and installs nothing of it:
#
#   fetch.sh <folder>
#
# ./bazelw calls this once. The folder gets five packages under fixed names, and `packages`: name, version and SHA-256 of
# each. apt checks what it downloads against the signed package lists. For a newer kernel, remove the folder.
set -euo pipefail

folder=$1

# depends_on <package> <prefix>: the package of that prefix that the first one depends on.
depends_on() {
  local name
  name=$(apt-cache depends "$1" | sed -nE "s/^ *Depends: ($2[^ ]+)$/\1/p" | head -n 1)
  [[ -n $name ]] || { echo "fetch.sh: apt knows no $1 that depends on a $2*; try: apt-get update" >&2; exit 1; }
  echo "$name"
}

image=$(depends_on linux-image-amd64 linux-image-)
headers=linux-headers-${image#linux-image-}
common=$(depends_on "$headers" linux-headers-)
kbuild=$(depends_on "$headers" linux-kbuild-)
source=$(depends_on linux-source linux-source-)
version=$(apt-cache show --no-all-versions "$image" | sed -n 's/^Version: //p')

mkdir -p "$(dirname "$folder")"
partial=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$partial"' EXIT
cd "$partial"
# A driver must be built from the very version of the kernel that loads it. Sandbox::User: apt would warn that its own
# user cannot write to this folder.
for name in "$image" "$headers" "$common" "$kbuild" "$source"; do
  apt-get -qq -o APT::Sandbox::User=root download "$name=$version"
  echo "$name $version $(sha256sum "$name"_*.deb | cut -d ' ' -f 1)" >>packages
done
mv "$image"_*.deb image.deb
mv "$headers"_*.deb headers.deb
mv "$common"_*.deb headers_common.deb
mv "$kbuild"_*.deb kbuild.deb
mv "$source"_*.deb source.deb
chmod 755 .
# Whole or not at all; where another process was faster, its folder stays.
mv --no-target-directory "$partial" "$folder" 2>/dev/null || [[ -e $folder/packages ]]
