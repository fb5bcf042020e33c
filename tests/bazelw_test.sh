#!/usr/bin/env bash
# bazelw with a fake dpkg-query, apt-get, sudo and bazel: the only programs on its PATH, so it can touch
# nothing real.
set -euo pipefail

[[ -x bazelw ]] || { echo "run by: bazel test //tests:bazelw_test" >&2; exit 1; }
source tests/checks.sh
bash=$(command -v bash)
tmp=$(mktemp -d "${TEST_TMPDIR:-/tmp}/bazelw.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# A checkout of Hawser with nothing else in it, whose fetch.sh is made below.
mkdir -p "$tmp/checkout/third_party/guest_kernel" "$tmp/checkout/rpc"
touch "$tmp/checkout/WORKSPACE"
cp bazelw "$tmp/checkout/"
bazelw=$tmp/checkout/bazelw
guest_kernel=$tmp/home/.cache/hawser/guest_kernel

# fake <program> <body>: a program that notes how it was called, then runs the body.
fake() {
  printf '#!%s\necho "%s $*" >>"%s/calls"\n%s\n' "$bash" "$1" "$tmp" "$2" >"$tmp/bin/$1"
  chmod +x "$tmp/bin/$1"
}

# What a fake Bazel says of the folder of its output.
says_where='[[ " $* " != *" info output_path "* ]] || { echo "'$tmp'/home/out"; exit; }; '

# A machine that has the guests' kernel, and every package except those named. $tmp/workspace is one that
# uses Hawser. Bazel says that each target needs $needed.
machine() {
  rm -rf "$tmp/bin" "$tmp/calls" "$tmp/absent" "$tmp/workspace"
  mkdir -p "$tmp/bin" "$tmp/workspace/deep" "$guest_kernel"
  touch "$tmp/calls" "$tmp/workspace/WORKSPACE" "$guest_kernel/packages"
  printf '%s\n' "$@" >"$tmp/absent"
  fake dpkg-query '
    status=0
    for name in "${@:3}"; do
      if [[ $'"'\\n'"'$(<'"$tmp"'/absent)$'"'\\n'"' == *$'"'\\n'"'$name$'"'\\n'"'* ]]; then
        echo "no packages found matching $name" >&2; status=1
      else
        echo "$name=installed"
      fi
    done
    exit $status'
  fake apt-get ''
  fake bazel "$says_where"'[[ " $* " != *" query "* ]] || { printf "%s\n" '"${needed-//third_party/guest_kernel:vmlinux}"'; exit; }; echo "in $PWD" >>"'"$tmp"'/calls"'
  fake id 'echo 0'
  fake env 'echo "env $1" >/dev/null; shift; exec "$@"'
  fake sudo 'exec "$@"'
  fake fetch.sh ''
  mv "$tmp/bin/fetch.sh" "$tmp/checkout/third_party/guest_kernel/"
}

# run <args>: bazelw in the folder $from, else in Hawser's own checkout; leaves $status, $output and $calls
# (without the questions it asked).
run() {
  status=0
  output=$(cd "${from:-$tmp/checkout}" && HOME=$tmp/home XDG_CACHE_HOME='' HAWSER_CACHE=${cache:-0} PATH=$tmp/bin "$bash" "$bazelw" "$@" 2>&1) || status=$?
  calls=$(grep -vE '^(dpkg-query|df|id|env|bazel.* query|bazel.* info) ' "$tmp/calls" || true)
}

machine
run test //... --config=asan 'two words'
check 'with nothing missing, bazel gets the arguments' is "$calls" \
  "bazel test //... --config=asan two words"$'\n'"in $tmp/checkout"
check 'and nothing is printed' is "$output" ''
check 'and one question was asked' is "$(grep -c dpkg-query "$tmp/calls")" 1

machine
fake bazel 'exit 3'
run test
check "bazel's exit status is bazelw's" is "$status" 3

machine libabsl-dev capnproto
HAWSER_NO_INSTALL=1 run build //x
check 'with HAWSER_NO_INSTALL=1 what is missing ends it with 2' is "$status" 2
check 'and is named, with its reason' has "$output" '  libabsl-dev: abseil'
check 'each of them' has "$output" '  capnproto: capnp and capnpc-c++'
check 'and nothing that is there is named' lacks "$output" 'libgtest-dev'
check 'and neither apt-get nor bazel is called' is "$calls" ''

machine libabsl-dev capnproto
run build //x
check 'exactly what is missing is installed, then bazel runs' is "$calls" \
  "apt-get update --quiet
apt-get install --quiet --yes --no-install-recommends -o DPkg::Lock::Timeout=600 capnproto libabsl-dev
bazel build //x
in $tmp/checkout"
check 'without a question being asked' has "$(<"$tmp/calls")" 'env DEBIAN_FRONTEND=noninteractive apt-get install'

machine g++-12
fake dpkg-query 'for name in "${@:3}"; do [[ $name == g++-12 ]] && echo g++-12=config-files || echo $name=installed; done'
run build //x
check 'a package that was removed but not purged is missing' has "$calls" 'Timeout=600 g++-12'

machine capnproto
fake apt-get '[[ $1 != install ]]'
run build //x
check 'apt-get failing ends it with 2' is "$status" 2
check 'and says so' has "$output" 'apt-get could not install'
check 'and bazel does not run' lacks "$calls" 'bazel build'

machine capnproto
fake apt-get '[[ $1 != update ]]'
run build //x
check 'stale package lists are tried when they cannot be renewed' has "$calls" 'bazel build //x'

machine capnproto
fake apt-get '
  [[ $1 != update ]] || { read -r tries <"'"$tmp"'/tries" || tries=0
    echo $((tries + 1)) >"'"$tmp"'/tries"
    ((tries == 2)) || { echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)" >&2; exit 100; }; }'
: >"$tmp/tries"
run build //x
check 'while another apt-get has the package lists, it waits' is "$(<"$tmp/tries")-$status" 3-0
check 'and says so once' is "$(grep -c 'another program updates the package lists; waiting' <<<"$output")" 1
check 'and then installs' has "$calls" 'apt-get install --quiet'

machine capnproto
fake id 'echo 1000'
run build //x
check 'who is not root goes through sudo' has "$calls" 'sudo env DEBIAN_FRONTEND=noninteractive apt-get install'

machine capnproto
fake id 'echo 1000'
rm "$tmp/bin/sudo"
run build //x
check 'who is not root and has no sudo is told what to run' has "$output" \
  'as root, run: apt-get install --no-install-recommends capnproto'
check 'and it ends with 2' is "$status" 2

machine
rm "$tmp/bin/dpkg-query"
run build //x
check 'where there is no Debian it names the packages and ends with 2' is "$status-${output/#*bazel-bootstrap*/named}" 2-named

machine
rm "$guest_kernel/packages"
HAWSER_NO_INSTALL=1 run build //x
check "with HAWSER_NO_INSTALL=1 the guests' missing kernel ends it with 2" is "$status" 2
check 'and is named, with its reason' has "$output" "  $guest_kernel: the kernel of the guests"
check 'and nothing is downloaded' is "$calls" ''

machine
rm "$guest_kernel/packages"
run build //x
check "the guests' missing kernel is downloaded, then bazel runs" is "$calls" \
  "fetch.sh $guest_kernel
bazel build //x
in $tmp/checkout"

machine
rm "$guest_kernel/packages"
sed -i '$a exit 1' "$tmp/checkout/third_party/guest_kernel/fetch.sh"
run build //x
check 'the download failing ends it with 2' is "$status" 2
check 'and bazel does not run' lacks "$calls" 'bazel build'

# What only Hawser's own tests need: some of it, and the kernel, are not there.
develop=(busybox-static clang-14 clang-format-14 clang-tidy-14 perftest qemu-system-x86 rdma-core)

machine "${develop[@]}"
rm "$guest_kernel/packages"
from=$tmp/workspace/deep run test //...
check "a workspace that uses Hawser is not asked for what only Hawser's tests need" is "$calls" \
  "bazel test //..."$'\n'"in $tmp/workspace/deep"
check 'and nothing is printed about it' is "$output" ''

machine "${develop[@]}" libabsl-dev
rm "$guest_kernel/packages"
from=$tmp/workspace HAWSER_NO_INSTALL=1 run test //...
check 'but for what using it needs' is "$status-$(grep -c '^  [^ ]*: ' <<<"$output")-${output/#*  libabsl-dev: abseil*/named}" 2-1-named

machine "${develop[@]}"
rm "$guest_kernel/packages"
from=$tmp/workspace HAWSER_NO_INSTALL=1 HAWSER_PACKAGES=develop run test //...
check 'HAWSER_PACKAGES=develop asks for it there, too' has "$output" '  qemu-system-x86: '
check 'and for the kernel' has "$output" "  $guest_kernel: the kernel of the guests"

machine "${develop[@]}"
rm "$guest_kernel/packages"
from=$tmp/checkout/rpc HAWSER_NO_INSTALL=1 HAWSER_PACKAGES=develop run test //...
for package in "${develop[@]}"; do
  check "with HAWSER_PACKAGES=develop $package is asked for" has "$output" "  $package: "
done
check 'and the kernel' has "$output" "  $guest_kernel: the kernel of the guests"
check 'and how to do without is said' has "$output" 'HAWSER_PACKAGES=use'
check 'and Bazel is not asked' lacks "$(<"$tmp/calls")" 'bazel query'

# asked <label>...: the packages that a test with these dependencies makes bazelw ask for, with one of each kind missing.
asked() {
  needed=$* machine "${develop[@]}" chromium gdb
  rm "$guest_kernel/packages"
  from=$tmp/checkout/rpc HAWSER_NO_INSTALL=1 run "${command[@]}"
  asked=$(sed -nE 's/^  ([^ ]+): .*/\1/p' <<<"$output" | sort | tr '\n' ' ')
}
command=(test --test_output=all //a:b_test //tests/...)
asked //third_party/packages:gdb //third_party/packages:chromium
check "in Hawser's own checkout a test asks for what Bazel says that it needs" is "$status-$asked" '2-chromium gdb '
check 'of all targets that are named' has "$(<"$tmp/calls")" 'deps(set(//a:b_test //tests/...))'
asked //third_party/guest_kernel:vmlinux //third_party/guest_kernel:modules.tar
check 'a guest needs its packages and the kernel' is "$status-$asked" "2-$guest_kernel busybox-static perftest qemu-system-x86 rdma-core "
command=(test --config=fuzz //a:b_test)
asked //third_party/packages:gdb
check 'and the fuzzers clang' is "$asked" 'clang-14 gdb '
command=(build //a)
asked ''
check 'and what needs nothing of it nothing' is "$status-$output" '0-bazelw: asking Bazel which packages the targets need'
command=(--host_jvm_args=-Xmx1g test -c dbg -- //a -//b)
asked ''
check 'Bazel is asked in the same server, and not of what is no target' has "$(<"$tmp/calls")" \
  'bazel --host_jvm_args=-Xmx1g query --keep_going --noshow_progress deps(set(//a)) '
: >"$tmp/calls"
fake bazel '[[ $1 != query ]]'
from=$tmp/checkout run build //nosuch
check 'if Bazel cannot tell, it says why itself, and nothing is installed' is "$calls" 'bazel build //nosuch'

machine "${develop[@]}"
rm "$guest_kernel/packages"
run --host_jvm_args=-Xmx1g run //examples:demo
check 'to run a program there nothing of it is needed' is "$calls" \
  "bazel --host_jvm_args=-Xmx1g run //examples:demo"$'\n'"in $tmp/checkout"

machine "${develop[@]}"
rm "$guest_kernel/packages"
HAWSER_PACKAGES=use run test //tests/rpc:server_test
check 'nor with HAWSER_PACKAGES=use' has "$calls" 'bazel test //tests/rpc:server_test'

machine "${develop[@]}"
HAWSER_PACKAGES=all run build //x
check 'another value of HAWSER_PACKAGES ends it with 2' is "$status" 2
check 'and says which there are' has "$output" 'HAWSER_PACKAGES=all: use or develop'
check 'and bazel does not run' is "$calls" ''

# What third_party/repositories.bzl looks for when a user's workspace is built, bazelw asks for there.
machine $(sed -n '/name = "hawser_system"/,/^        )/s/.*": "\(.*\)",$/\1/p' third_party/repositories.bzl)
from=$tmp/workspace HAWSER_NO_INSTALL=1 run build //x
for package in libabsl-dev libgmock-dev $(<"$tmp/absent"); do
  check "$package, which repositories.bzl looks for, is asked for" has "$output" "  $package: "
done

machine
from=$tmp/workspace/deep run test //:x -- relative/file
check 'in a workspace it stays where the user is' has "$calls" "in $tmp/workspace/deep"

machine
mkdir -p "$tmp/elsewhere"
from=$tmp/elsewhere run version
check "outside any workspace it goes to its own" has "$calls" "in ${bazelw%/*}"

# What was built before: real programs work in the folder of the cache, which is the test's own.
cached_machine() {
  machine "$@"
  for program in awk cat find grep mkdir rm sha256sum sort touch uname xargs; do ln -s "$(command -v "$program")" "$tmp/bin/"; done
  fake dpkg-query 'for name in "${@:3}"; do echo "$name=installed"; done; echo '"${version:-1}"
  # Bazel sees what was exported to it, too.
  fake bazel "$says_where"'echo "exported $HAWSER_BAZEL_OPTIONS" >>"'"$tmp"'/calls"'
}
folder=$tmp/home/.cache/hawser/bazel
key() { sed -nE "s/^bazel .* --action_env=HAWSER_SYSTEM=([0-9a-f]{16}) .*/\1/p" <<<"$calls"; }
# Pruning goes on beside Bazel.
pruned_by_now() {
  local end=$((SECONDS + 60))
  while [[ -e $1 ]]; do ((SECONDS < end)) || return 1; done
}

cached_machine
cache=1 run --host_jvm_args=-Xmx1g test //x --config=asan 'two words'
first=$(key)
check 'Bazel gets the cache and the key of the packages, behind its command' is "${calls%%$'\n'*}" \
  "bazel --host_jvm_args=-Xmx1g test --disk_cache=$folder --action_env=HAWSER_SYSTEM=$first --host_action_env=HAWSER_SYSTEM=$first //x --config=asan two words"
check 'and so does a program that calls Bazel' has "$calls" "exported --disk_cache=$folder"
check 'and nothing is printed' is "$output" ''
machine
fake df 'printf "Avail\n%s\n" '"4000001"
ln -s "$(command -v grep)" "$(command -v cat)" "$tmp/bin/"
run test //x
check 'actions run in memory, if there is enough' is "${calls%%$'\n'*}" "$(grep -qE ' /dev/shm [^ ]+ [^ ]*noexec' /proc/mounts &&
  echo 'bazel test //x' || echo 'bazel test --sandbox_base=/dev/shm --sandbox_debug=false //x')"
fake df 'printf "Avail\n%s\n" '"4000000"
: >"$tmp/calls"
run test //x
check 'and elsewhere if there is less' is "${calls%%$'\n'*}" 'bazel test //x'

cached_machine
cache=1 run run //tools:x -- test
check 'once' is "$(grep -o -e --disk_cache <<<"${calls%%$'\n'*}" | wc -l)-$(key)" "1-$first"
version=2 cached_machine
cache=1 run build //x
check 'another version of a package is another key' lacks "$(key)" "$first"
cached_machine
fake dpkg-query 'for name in "${@:3}"; do [[ $name != valgrind && $name != clang* && $name != lib*clang* ]] && echo "$name=installed"; done; echo 1'
HAWSER_PACKAGES=use cache=1 run build //x
check 'a package that only tests need is no part of the key: installing it builds nothing anew' is "$(key)" "$first"
cached_machine
cache=1 run query //x
check 'a query gets neither' has "$(<"$tmp/calls")" 'bazel query //x'
cached_machine
cache=0 run build //x
check 'nor does anything with HAWSER_CACHE=0' has "$calls" 'bazel build //x'
# What the packages of a first machine are: no clang, so that a pattern fits none, and dpkg-query fails.
cached_machine
fake dpkg-query 'for name in "${@:3}"; do echo "$name=installed"; done; exit 1'
cache=1 run run //examples:demo
check 'a pattern that fits no package is no reason to fail' is "$status-${calls%%=*}" '0-bazel run --disk_cache'
cached_machine
echo 'build --disk_cache=/team' >"$tmp/checkout/.bazelrc"
cache=1 run build //x
check 'a cache that a .bazelrc names is left alone' has "$calls" 'bazel build //x'
rm "$tmp/checkout/.bazelrc"
cached_machine
rm -rf "$folder"
touch "$folder"
cache=1 run build //x
check 'without a folder for it Bazel runs without a cache' has "$calls" 'bazel build //x'
rm "$folder"

cached_machine
mkdir -p "$folder"/{ac,cas}
touch --date='15 days ago' "$folder/cas/old" "$folder/ac/old"
touch --date='2 hours ago' "$folder/29ddc581-7fac-4157-84f6-00beb3a3a018"
touch "$folder/0a4bd2c0-6a5b-4c02-9e6c-0d2c7d1f5a10"
truncate --size=13G "$folder/cas/large" "$folder/cas/large and older"
touch --date='2 days ago' "$folder/cas/large and older"
cache=1 run build //x
check 'what was not used for two weeks is deleted' pruned_by_now "$folder/cas/old"
check 'there and among the actions' pruned_by_now "$folder/ac/old"
check 'and of what is too much the oldest' pruned_by_now "$folder/cas/large and older"
check 'and nothing else' is "$(ls "$folder/cas")" large
check 'nor what Bazel writes now, but what it left when a disk was full' is "$(cd "$folder" && echo *-*-*)" \
  0a4bd2c0-6a5b-4c02-9e6c-0d2c7d1f5a10
touch --date='15 days ago' "$folder/cas/old"
cache=1 run build //x
check 'once an hour' is "$(ls "$folder/cas")" $'large\nold'
touch --date='61 minutes ago' "$folder/pruned"
cache=1 run build //x
check 'and then again' pruned_by_now "$folder/cas/old"
# 1 GB is free of 100, so 9 of the 13 here go, or all that is older.
fake df 'printf "Avail 1B-blocks\n1000000000 100000000000\n"'
truncate --size=1G "$folder/cas/new"
touch --date='2 hours ago' "$folder/cas/large" "$folder/pruned"
cache=1 run build //x
check 'less is kept where a tenth of the disk would not be free' pruned_by_now "$folder/cas/large"
check 'and the newest stays' is "$(ls "$folder/cas")" new

# Links of headers that an earlier state of the checkout has left.
rules=$tmp/checkout/rpc/BUILD.bazel out=$tmp/home/out
cached_machine
rm -rf "$out"
ln -sfn "$out" "$tmp/checkout/bazel-out"
link() { mkdir -p "$out/k8-opt/bin/rpc/_virtual_includes/$1" "$out/k8-opt/bin/rpc/server.runfiles/_virtual_includes"; }
links() { (cd "$out/k8-opt/bin/rpc" && echo */* ); }
touch "$rules"
link server
run query //x
check 'a query leaves the links of headers' is "$(links)" '_virtual_includes/server server.runfiles/_virtual_includes'
run build //x
check 'before a build those go that an earlier state may have left' is "$(links)" 'server.runfiles/_virtual_includes'
link server
run build //x
check 'and stay while no rule changes' is "$(links)" '_virtual_includes/server server.runfiles/_virtual_includes'
touch --date='+1 minute' "$rules"
run test //x
check 'and go when one has changed' is "$(links)" 'server.runfiles/_virtual_includes'
check 'nothing is printed' is "$status-$output" 0-
rm "$tmp/checkout/bazel-out"
link server
touch --date='+2 minutes' "$rules"
run build //x
check 'a new checkout has none of one that was in its place' is "$(links)" 'server.runfiles/_virtual_includes'
check 'without a word' is "$status-$output" 0-
rm -rf "$out"
run build //x
check 'without a build before there are none' is "$status-$output" 0-

verdict
