#!/usr/bin/env bash
# Builds Hawser on a Debian 13, and runs the demo and tests there. By hand, as root, on a Debian machine:
#
#   tests/debian13/run.sh [folder]
#
# Makes the Debian 13 in the folder (/var/tmp/hawser-debian13) from the distribution's packages, by debootstrap; one that is there
# from an earlier run is used again, with what was built in it. The sources are those of this checkout, with what is not committed.
# Takes 4 GB of disk. The first run compiles everything: half an hour on two cores.
#
#   CC=gcc-12      the compiler; gcc-14, that of the release, if it is not set. Its package is named g++ in place of gcc.
#   MIRROR=http://deb.debian.org/debian
#   TARGETS='//tests/base/... ...'    what to test, in place of the list below. Tests of RDMA in a guest are never among them.
#
# Needs: debootstrap, and the right to mount and to chroot. Exit status 0: the demo ran, and all tests passed.
set -euo pipefail

root=$(realpath -m "${1:-/var/tmp/hawser-debian13}")
checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
readonly root checkout compiler=${CC:-gcc-14} mirror=${MIRROR:-http://deb.debian.org/debian}
read -r -a targets <<<"${TARGETS:-//tests:toolchain_test //tests:toolchain_archives_test //tests/base/... //tests/transport/... //tests/rpc/... //tests/codegen/...}"

fail() { echo "run.sh: $*" >&2 && exit 1; }
[[ $(id -u) == 0 ]] || fail 'has to be run as root, for chroot'
command -v debootstrap >/dev/null || fail 'needs debootstrap: apt-get install debootstrap'
[[ $root != / && $root != "$checkout" && $root != "$checkout"/* ]] || fail "$root is no place for another system"

if [[ ! -e $root/.hawser-complete ]]; then
  [[ ! -e $root || -z $(ls -A "$root") ]] || fail "$root has something else in it, or what an earlier run left unfinished; remove it"
  mkdir -p "$root"
  debootstrap --variant=minbase trixie "$root" "$mirror"
  : >"$root/.hawser-complete"
fi

mounted=()
# The Bazel of the new system would keep what is mounted in use.
unmount() {
  local i
  inside './bazelw shutdown' >/dev/null 2>&1 || true
  for ((i = ${#mounted[@]}; i-- > 0;)); do umount --recursive "${mounted[i]}" || umount --lazy "${mounted[i]}"; done
}
trap unmount EXIT
# mounts <folder of the new system> <arguments of mount>...
mounts() {
  mountpoint --quiet "$root/$1" && return
  mkdir -p "$root/$1"
  mount "${@:2}" "$root/$1"
  mounted+=("$root/$1")
}
mounts proc -t proc proc
mounts sys --rbind --make-rslave /sys
mounts dev --rbind --make-rslave /dev
cp --dereference /etc/resolv.conf "$root/etc/resolv.conf"

# As it is in this checkout: with changed and new files, without what git ignores. Files that did not change keep their times.
mkdir -p "$root/hawser"
files=$(mktemp)
git -C "$checkout" ls-files -z --cached --others --exclude-standard >"$files"
find "$root/hawser" -mindepth 1 -maxdepth 1 ! -name 'bazel-*' -exec rm -rf {} +
tar -C "$checkout" --null --files-from="$files" --ignore-failed-read -cf - 2>/dev/null | tar -C "$root/hawser" -xf -
rm -f "$files"

# Runs in the new system, with an environment of its own.
inside() {
  chroot "$root" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "set -euo pipefail; cd /hawser; $1" - "${@:2}"
}
readonly options="--repo_env=CC=$compiler --noshow_progress --color=no --curses=no"

inside 'apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends "$@"' \
  "${compiler/gcc/g++}" git iproute2 procps
echo '== the demo'
# shellcheck disable=SC2086  # Each is a word.
inside './bazelw run "$@" //examples:demo' $options
echo '== the tests'
# shellcheck disable=SC2086
inside './bazelw test --keep_going --build_tests_only "$@"' $options "${targets[@]}"
echo '== what this was seen with'
# shellcheck disable=SC2016
inside 'cat /etc/debian_version; "$1" --version | head -n 1; capnp --version
  dpkg-query --show bazel-bootstrap libabsl-dev libcapnp-dev libssl-dev' "$compiler"
