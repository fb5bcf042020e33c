# shellcheck shell=bash
# Sourced by what runs programs under memcheck: "${memcheck[@]}" PROGRAM ARGUMENT... Exit status 99: memcheck has found something.
command -v valgrind >/dev/null || { echo 'there is no valgrind: install the package valgrind' >&2; exit 1; }
memcheck=(valgrind --quiet --error-exitcode=99 --num-callers=40 --suppressions=tests/memcheck/explained.supp)
# Threads take turns in the order in which they ask. Without that, one that waits for another may starve it.
memcheck+=(--fair-sched=yes)
