#!/usr/bin/env bash
# How hawser is used: wrong usage, help, the man page, and completion in a real bash.
source tests/examples/checks.sh
hawser=$PWD/tools/hawser/hawser

run "$hawser"
check 'no command is wrong usage' is "$status-${err%%$'\n'*}" '2-hawser: no command'
run "$hawser" lst
check 'an unknown command: the nearest' has "$err" 'there is no command "lst"; did you mean "list"?'
check 'is wrong usage' is "$status" 2
run "$hawser" somersault
check 'or all there are, in a sentence of their own' has "$err" 'there is no command "somersault". There are: list, '
run "$hawser" list --tarqet=tcp://127.0.0.1:1
check 'an unknown flag: the nearest' has "$err" 'there is no flag --tarqet here; did you mean "--target"?'
check 'is wrong usage, too' is "$status" 2
run "$hawser" list
check 'without --target it says so' is "$status-$(grep -c 'no --target: which server?' <<<"$err")" 2-1
run "$hawser" list --target=nonsense
check 'a target that is no address' is "$status" 2
run "$hawser" list --target=http://127.0.0.1:1
check 'or of another protocol' is "$status-$(grep -c 'no scheme of Hawser is http://; there are: tcp://' <<<"$err")" 2-1
run "$hawser" perf --target=tcp://127.0.0.1:1 --test=latency --in-flight=2
check 'a flag without effect' is "$status-$(grep -c 'in-flight: a latency is that of one call' <<<"$err")" 2-1
run "$hawser" list --target=tcp://127.0.0.1:1 --timeout=soon
check 'a time that is none' is "$status-$(grep -c 'that is not a time span' <<<"$err")" 2-1
run "$hawser" list --target=tcp://127.0.0.1:1 word
check 'a word too many' is "$status-$(grep -c 'do not know what to do with "word"' <<<"$err")" 2-1
run "$hawser" call --target=tcp://127.0.0.1:1
check 'a word too few' is "$status-$(grep -c 'it needs NAME.METHOD' <<<"$err")" 2-1
run "$hawser" call --target=tcp://127.0.0.1:1 a.b '{}' --metadata=x
check 'metadata that is none' is "$status-$(grep -c 'needs KEY=VALUE' <<<"$err")" 2-1
run "$hawser" call --target=tcp://127.0.0.1:1 a.b '{}' --metadata=X=y
check 'or has a bad key' is "$status" 2
run "$hawser" list --target=tcp://127.0.0.1:1 --tls_key=x
check 'a third of TLS' is "$status-$(grep -c 'TLS needs all of' <<<"$err")" 2-1
run "$hawser" $'l\x1b[2Jist'
check 'what was typed is escaped' is "$(grep -c $'\x1b' <<<"$err")" 0

# Help.
run "$hawser" --help
check 'help is no error' is "$status-${out%%:*}" 0-usage
commands=$(sed -n 's/^  \([a-z]*\)  .*/\1/p' <<<"$out")
check 'it names the commands' is "$(tr '\n' ' ' <<<"$commands")" 'list describe call ping perf health status top doctor completion man version '
for command in $commands; do
  run "$hawser" "$command" --help
  check "help of $command" is "$status-${out%%:*}" 0-usage
  check 'fits 100 columns' is "$(awk 'length > 100' <<<"$out")" ''
  check 'and says what it is for' has "$out" 'Flags:'
done

for words in 'help call' 'call -h' '--help call'; do
  read -ra words <<<"$words"
  run "$hawser" "${words[@]}"
  check "so is ${words[*]}" is "$status-$(grep -c '^usage: hawser call' <<<"$out")" 0-1
done

# The version.
version_line() { sed -n "s/^$1  *//p" <<<"$out"; }
run "$hawser" --version
check 'the version is no error' is "$status-$err" 0-
check 'of hawser' is "$(version_line hawser)" "$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' base/version.h)"
check 'of the protocol' is "$(version_line protocol)" "$(sed -n 's/^# The Hawser protocol, version //p' rpc/PROTOCOL.md)"
check 'of the libraries' is "$(grep -cE '^(capnp|abseil) +[0-9]+\.[0-9.]+$|^openssl +OpenSSL [0-9]' <<<"$out")" 3
check 'those of RDMA, if they are there' is "$(grep -cE '^lib(ibverbs|rdmacm) +(lib(ibverbs|rdmacm)\.so\.1[0-9.]*|none)$' <<<"$out")" 2
version=$out
run "$hawser" version
check 'it is also a command' is "$status-$out" "0-$version"
run "$hawser" --version --json
check 'with --json it is an object' is "$status-$(python3 -c 'import json, sys; print(*json.loads(sys.argv[1]))' "$out")" \
  '0-hawser protocol capnp abseil openssl libibverbs librdmacm'
run "$hawser" --version=2
check 'it has no value' is "$status" 2
run "$hawser" version word
check 'and no words' is "$status-$(grep -c 'do not know what to do with "word"' <<<"$err")" 2-1
run "$hawser" --version --help
check 'its help' is "$status-$(grep -c '^usage: hawser version' <<<"$out")" 0-1

# The man page.
plain() { sed 's/\x1b\[[0-9;]*m//g; s/.\x08//g' <<<"$1"; }
run "$hawser" man
check 'the man page names each command' is "$(grep -c '^\.SS hawser ' <<<"$out")" "$(wc -w <<<"$commands")"
printf '%s\n' "$out" >"$tmp/hawser.1"
run groff -ww -b -man -Tascii "$tmp/hawser.1"
check 'it renders' is "$status" 0
check 'without warnings' is "$err" ''
check 'with the text of --help' has "$(plain "$out" | tr -s ' \n' ' ')" 'Measures round trips of small calls. Makes one call'
check 'and with the examples as they are' has "$(plain "$out")" "hawser call --target=tcp://kv1:7470 KeyValue.get '{\"key\": \"tow\"}'"

# Completion.
run "$hawser" completion fish
check 'a shell that it does not know is wrong usage' is "$status" 2
"$hawser" completion bash >"$tmp/completion"
# complete_line LINE WORD: what is offered for WORD, which bash takes for the last one of LINE.
complete_line() {
  bash --norc --noprofile -c '
    set -u
    source "$1"
    COMP_LINE=$2 COMP_POINT=${#2}
    _hawser hawser "$3" ""
    printf "%s\n" "${COMPREPLY[@]}" | sort | tr "\n" " "
  ' bash "$tmp/completion" "$@"
}
check 'commands are completed' is "$(complete_line 'hawser ' '')" "$(sort <<<"$commands" | tr '\n' ' ')"
check 'by how they begin' is "$(complete_line 'hawser de' de)" 'describe '
check 'flags of a command' is "$(complete_line 'hawser call --ti' --ti)" '--timeout= '
check 'that others do not have' is "$(complete_line 'hawser list --met' --met)" ' '
check 'and those that they have' is "$(complete_line 'hawser call --target=tcp://a:1 --met' --met)" '--metadata= '
check 'also behind a flag' is "$(complete_line 'hawser --target=list ca' ca)" 'call '
check 'schemes of a target' is "$(complete_line 'hawser list --target=' '')" 'auto:// rdma:// tcp:// '
check 'none where there is one' is "$(complete_line 'hawser list --target=tcp://a:1' 1)" ' '
check 'the choices of a flag' is "$(complete_line 'hawser perf --way=' '')" 'read send write '
check 'the shell' is "$(complete_line 'hawser completion ' '')" 'bash '
touch "$tmp/key.pem"
check 'files' is "$(complete_line "hawser list --tls_key=$tmp/key" "$tmp/key")" "$tmp/key.pem "
check 'of the fields of a message' is "$(complete_line "hawser call --in=a.b=$tmp/key" "$tmp/key")" "$tmp/key.pem "
check 'and none for their names' is "$(complete_line "hawser call --in=$tmp/key" "$tmp/key")" ' '
check 'bash may divide a line at = or not' is "$(complete_line "hawser call --in=a=$tmp/key" "--in=a=$tmp/key")" "--in=a=$tmp/key.pem "
check 'the function is registered' is "$(bash --norc --noprofile -c 'source "$1"; complete -p hawser' bash "$tmp/completion")" \
  'complete -F _hawser hawser'
# On a terminal, with the tab key. Of "hawser" there the arguments are printed, so that it is seen what the shell makes of them.
mkdir -p "$tmp/files/folder" "$tmp/files/with blank" "$tmp/files/a:b" "$tmp/files/c=d" "$tmp/home/keys"
touch "$tmp"/files/{folder/key,'with blank/my key',a:b/key,c=d/key,"quo'te"}.pem "$tmp/home/keys/home.pem"
types() {
  run env -C "$tmp/files" HOME="$tmp/home" "$PWD/tests/tools/terminal.py" "$tmp/completion" "$@"
  check "typed: $1" is "$status" 0
}
types 'hawser desc\t\n' '[describe]'
types 'hawser call --targ\ttc\t\n' '[call][--target=tcp://]'
types 'hawser call --tls_k\tfold\tk\t --js\t\n' '[--tls_key=folder/key.pem][--json]'
types 'hawser call --in=value=fold\tk\t --js\t\n' '[--in=value=folder/key.pem][--json]'
types 'hawser call --in=value=wi\tm\t --js\t\n' '[--in=value=with blank/my key.pem][--json]'
types 'hawser call --in=value=with\ b\tm\t --js\t\n' '[--in=value=with blank/my key.pem][--json]'
types 'hawser call --in=value="with b\tm\t --js\t\n' '[--in=value=with blank/my key.pem][--json]'
types "hawser call --tls_key='with b\\tm\\t --js\\t\\n" '[--tls_key=with blank/my key.pem][--json]'
types 'hawser call --tls_key=quo\t --js\t\n' "[--tls_key=quo'te.pem][--json]"
types 'hawser call --tls_key=~/k\thome\t --js\t\n' "[--tls_key=$tmp/home/keys/home.pem][--json]"
types 'hawser call --out=a.b=~\thome\t --js\t\n' "[--out=a.b=$tmp/home/keys/home.pem][--json]"
types 'hawser call --in=value=a:\tk\t --js\t\n' '[--in=value=a:b/key.pem][--json]'
types 'hawser call --in=value=c=\tk\t --js\t\n' '[--in=value=c=d/key.pem][--json]'
types 'set -fu; shopt -s failglob\nhawser call --in=value=no\twi\t\n' '[--in=value=nowi]'
types 'COMP_WORDBREAKS=${COMP_WORDBREAKS//[=:]}\nhawser call --in=value=wi\tm\t --js\t\n' '[--in=value=with blank/my key.pem][--json]'

verdict
