#!/usr/bin/env bash
# .ci/run with a bazelw that only prints what Bazel would: what is counted, what is looked at twice, and what ends a run.
set -euo pipefail

[[ -x .ci/run ]] || { echo "run by: bazel test //tests:ci_run_test" >&2; exit 1; }
source tests/checks.sh
tmp=$(mktemp -d "${TEST_TMPDIR:-/tmp}/ci_run.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# A checkout of its own: nothing in it is real but .ci.
checkout() {
  rm -rf "$tmp/checkout" "$tmp/bin"
  mkdir -p "$tmp/bin" "$tmp/checkout"/{tests/mutants,examples/outside}
  cp -RL .ci "$tmp/checkout/"
  : >"$tmp/calls"
  : >"$tmp/checkout/sound.cc"
  : >"$tmp/checkout/examples/outside/user.cc"
  program "$tmp/bin/clang-format-14" ''
  program "$tmp/bin/clang-14" ''
  program "$tmp/checkout/tests/mutants/run.py" ''
  bazel ''
  git -C "$tmp/checkout" init --quiet --initial-branch=main
  commit before
}
program() { printf '#!/usr/bin/env bash\n%s\n' "$2" >"$1" && chmod +x "$1"; }
commit() {
  git -C "$tmp/checkout" add --all
  git -C "$tmp/checkout" -c user.name=any -c user.email=any@localhost commit --quiet --allow-empty --message="$1"
}

# bazel <cases>: what `bazelw` does, as branches of a `case` over its arguments; else two tests pass.
bazel() {
  program "$tmp/checkout/bazelw" '
    echo "$*" >>"'"$tmp"'/calls"
    log() { mkdir -p "bazel-testlogs/$1" && cat >"bazel-testlogs/$1/test.log"; }
    case "$*" in
      '"$1"'
      run*) echo "[{\"file\": \"$PWD/user.cc\", \"directory\": \".\", \"arguments\": [\"gcc\"]}]" >compile_commands.json ;;
      test*) printf "//a:fine PASSED in 0.5s\n//a:well (cached) PASSED in 1.5s\nExecuted 2 out of 2 tests: 2 tests pass.\n" ;;
    esac'
}

# run [argument]...: leaves $status, $output and $calls.
run() {
  status=0
  output=$(PATH=$tmp/bin:$PATH "$tmp/checkout/.ci/run" "$@" 2>&1) || status=$?
  calls=$(<"$tmp/calls")
}
last_line() { tail -n 1 <<<"$output"; }

checkout
run
stages=$(grep -c '^test ' <<<"$calls")
others=$(grep -cE '^ +[0-9]+ s  ' <<<"$output")
check 'if all passes, the exit status is 0' is "$status" 0
check 'and the tests of each stage are counted' is "$(last_line)" "$((2 * stages + others - stages)) passed, 0 failed"
check 'no result of a test is taken from the cache' is "$(grep '^test ' <<<"$calls" | grep -c -e --nocache_test_results)" "$stages"
# A warning of another compiler or library must not keep a user from building.
check 'warnings are errors in what gcc compiles here without a sanitizer' is "$(grep -c -e ' --config=strict ' <<<"$calls")" 3
check 'and nowhere else' is "$(grep -h Werror .bazelrc hawser.bazelrc | grep -vcE '^(#|build:strict |build:fuzz .*@-Wthread-safety,-Werror=thread-safety$)')" 0
check 'the dearest tests are shown' has "$output" $'== the ten dearest tests\n   0.5 s  //a:fine'

checkout
printf 'a\n<<<<<<< ours\n' >"$tmp/checkout/merged.cc"
commit 'half a merge'
run
check 'the marks of a merge fail' is "$status-$(last_line)" '1-2 passed, 1 failed'
check 'and nothing that takes long runs then' lacks "$calls" 'test '

# An item of a list, whose paragraph goes on. Code may be as wide as it is, but not by a comment behind it.
checkout
words=$(printf ' words%.0s' {1..17})
printf '// -%s words\n//   and so on.\nint x;  //%s words\n' "$words" "$words" >"$tmp/checkout/wide.cc"
commit 'a wide comment'
run
check 'a comment that is wider than 110 columns fails, and is named' has "$output" 'wide.cc:1: a comment of 112 columns, more than 110'
check 'also one behind code' has "$output" 'wide.cc:3: a comment of 118 columns, more than 110'
check 'and nothing that takes long runs then' is "$status-$(grep -c '^test ' <<<"$calls")" '1-0'
output=$("$tmp/checkout/.ci/comments.py" --wrap "$tmp/checkout/wide.cc" 2>/dev/null; cat "$tmp/checkout/wide.cc")
check 'comments.py --wrap breaks the first, with the indentation of its item' is "$output" \
  "$(printf '// -%s\n//   words and so on.\nint x;  //%s words' "$words" "$words")"

checkout
program "$tmp/checkout/tests/mutants/run.py" 'exit 1'
run
check 'a mistake that does not fit fails, and nothing that takes long runs' is "$status-$(grep -c '^test ' <<<"$calls")" '1-0'

# A failure in the first stage only.
fails='printf "//a:fine PASSED in 0.5s\n//b:shaky FAILED in 2.0s\nExecuted 2 out of 2 tests: 1 fails.\n"; exit 3 ;;'
checkout
bazel '*--runs_per_test=10*//b:shaky) echo "//b:shaky PASSED in 2.0s" ;;
  test*" //...") echo "waited too long" | log b/shaky; '"$fails"
run
check 'a test that fails, and passes ten times alone, does not refuse a change' is "$status" 0
check 'it counts as passed' has "$(last_line)" ', 0 failed'
check 'it is called flaky, in the last lines' has "$(tail -n 2 <<<"$output")" 'FLAKY //b:shaky'
check 'with its log' has "$output" 'waited too long'

checkout
bazel '*--runs_per_test=10*//b:shaky) exit 3 ;;
  test*" //...") echo "waited too long" | log b/shaky; '"$fails"
run
check 'a test that fails again has failed' is "$status-${output##*, }" '1-1 failed'
check 'and is not called flaky' lacks "$output" 'FLAKY'
check 'and the other stages run' is "$(grep '^test ' <<<"$calls" | grep -vc -e --runs_per_test)" "$stages"

for sign in 'WARNING: ThreadSanitizer: data race' '==7== Invalid read of size 8' 'seed 12: an answer came twice' \
  'x.cc:3: runtime error: shift' 'hawser: a.cc:1: CHECK failed: b' 'hawser: tests/sim/world.cc:1: CHECK failed: b' \
  'line 3: 7 Segmentation fault' 'line 3: 7 Aborted'; do
  checkout
  bazel 'test*" //...") echo "'"$sign"'" | log b/shaky; '"$fails"
  run
  check "no second look at: $sign" is "$status-$(grep -c -e --runs_per_test <<<"$calls")" '1-0'
done

# What a test checks of its own set-up, with the abort that this brings.
own_check=$'hawser: external/hawser/tests/b/shaky_test.cc:1: CHECK failed: server.ok()\nline 3: 7 Aborted'
checkout
bazel '*--runs_per_test=10*//b:shaky) echo "//b:shaky PASSED in 2.0s" ;;
  test*" //...") echo "'"$own_check"'" | log b/shaky; '"$fails"
run
check 'a CHECK() of the test itself is looked at twice' is "$status-$(tail -n 2 <<<"$output" | head -n 1)" '0-FLAKY //b:shaky'
checkout
bazel 'test*" //...") echo "'"$own_check"$'\n'"hawser: a.cc:1: CHECK failed: b"'" | log b/shaky; '"$fails"
run
check 'but not if one of the library failed, too' is "$status-$(grep -c -e --runs_per_test <<<"$calls")" '1-0'

checkout
bazel '*--runs_per_test=10*) ;;
  test*"--config=tsan"*) echo late | log external/hawser/b/shaky
    printf "@hawser//b:shaky TIMEOUT in 60.0s\nExecuted 1 out of 1 test: 1 fails.\n"; exit 3 ;;'
run
check 'the second look is in the same workspace, with the same options' has "$calls" "--config=tsan --local_test_jobs=3 --build_tests_only"
check 'and finds the log there' is "$status-$(tail -n 2 <<<"$output" | head -n 1)" '0-FLAKY @hawser//b:shaky'

checkout
bazel 'test*" //...") printf "ERROR: no such target\n"; exit 1 ;;'
run
check 'what does not build fails, and is not looked at twice' is "$status-${output##*, }-$(grep -c -e --runs_per_test <<<"$calls")" '1-1 failed-0'

checkout
echo 'any' >"$tmp/checkout/deleted.cc"
commit between
echo changed >"$tmp/checkout/sound.cc"
echo new >"$tmp/checkout/new file.md"
rm "$tmp/checkout/deleted.cc"
touch "$tmp/checkout/BUILD.bazel"
commit after
mkdir "$tmp/checkout/rpc"
touch "$tmp/checkout/rpc/BUILD.bazel"
bazel 'query*"kind('"'_test rule', //...)"'"*) echo "//a:fine" ;;'
run quick
check 'quick asks for what changed since the last commit, and for what is new' has "$calls" 'set(//:all //rpc:all '
check 'and runs what that reaches' has "$calls" '--nocache_test_results --profile='
check 'and only that' is "$status-$(grep -c '^test ' <<<"$calls")" '0-1'
check 'and clang-tidy' has "$calls" 'build --config=tidy'
touch "$tmp/checkout/any.bzl"
run quick
check 'a rule reaches everything' has "$calls" 'set(//... '

bazel 'query*" //...") echo "no such package" >&2; exit 7 ;;'
run quick
check 'a package that does not load fails' is "$status-${output##*, }" '1-1 failed'
bazel 'query*"let tests"*) echo "cannot say why" >&2; exit 7 ;;'
run quick
check 'and so does a question that Bazel cannot answer' is "$status-${output##*, }" '1-1 failed'
check 'and it is shown why' has "$output" 'cannot say why'
run quick nosuchcommit
check 'a commit that is none is refused' is "$status" 2

run slow
check 'another word is refused' is "$status" 2

verdict
