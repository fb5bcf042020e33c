#!/usr/bin/env bash
# //tools:install: what it installs runs where there is no Bazel, and wrong usage and places that cannot be written are named.
source tests/examples/checks.sh
install=$PWD/tools/install
prefix="$tmp/with blank/prefix"

run "$install" --prefix="$prefix"
check 'it installs' is "$status" 0
check 'and says what' is "$out" "$prefix/bin/hawser
$prefix/share/man/man1/hawser.1
$prefix/share/bash-completion/completions/hawser"
check 'and that the shell will not find it' has "$err" "$prefix/bin is not in \$PATH"
check 'those files, and no others' is "$(find "$prefix" -type f | wc -l)" 3
# Somewhere else, and with nothing of Bazel's around: not its folder, nor its variables.
mv "$prefix" "$tmp/moved"
run env -i -C / PATH=/usr/bin:/bin "$tmp/moved/bin/hawser" --help
check 'the tool runs' is "$status-${out%%:*}" 0-usage
check 'it is a file of its own' is "$(find "$tmp/moved" -type l | wc -l)" 0
run groff -ww -b -man -Tascii "$tmp/moved/share/man/man1/hawser.1"
check 'the man page renders' is "$status-$err" 0-
run bash --norc --noprofile -c 'source "$1" && complete -p hawser' bash "$tmp/moved/share/bash-completion/completions/hawser"
check 'bash completes it' is "$out" 'complete -F _hawser hawser'

# Over what is there, also while it runs.
run "$install" --prefix="$tmp/moved"
check 'it is replaced' is "$status" 0
cp "$(command -v sleep)" "$tmp/moved/bin/hawser"
"$tmp/moved/bin/hawser" 600 &
sleeper=$!
run env PATH="$tmp/moved/bin:$PATH" "$install" --prefix="$tmp/moved"
check 'while it runs as well' is "$status-$err" 0-
kill "$sleeper"
run "$tmp/moved/bin/hawser" --help
check 'by the new one' is "$status-${out%%:*}" 0-usage
run "$install" --uninstall --prefix="$tmp/moved"
check 'it is removed' is "$status-$(find "$tmp/moved" -type f)" 0-

mkdir "$tmp/here"
run env BUILD_WORKING_DIRECTORY="$tmp/here" "$install" --prefix=relative
check 'a relative folder starts from the current one' is "$status-$(ls "$tmp/here/relative")" $'0-bin\nshare'
run env HOME="$tmp/home" "$install" --prefix='~/.local'
check 'as it is, ~ is the home folder' is "$status-$(ls "$tmp/home/.local")" $'0-bin\nshare'
run "$install" --destdir="$tmp/package" --prefix=/usr
check 'a package has it below its root' is "$status-$(ls "$tmp/package/usr/bin")-$err" '0-hawser-'

run "$install" --prefix=/dev/null/none
check 'a place that cannot be written is named' is "$status-$(grep -c 'cannot write /dev/null/none/bin/hawser; --prefix=DIR' <<<"$err")" 1-1
for wrong in --prefix= --perfix=/usr word; do
  run "$install" "$wrong"
  check "$wrong is wrong usage" is "$status-$(grep -c 'there are --prefix=DIR, --destdir=DIR and --uninstall' <<<"$err")" 2-1
done
run "$install" --help
check 'help' is "$status-$(grep -c -e '--destdir=DIR' <<<"$out")" 0-1

verdict
