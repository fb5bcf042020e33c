#!/usr/bin/env bash
# In a guest: beside_perftest.sh prints its table, with a figure at each place.
set -euo pipefail

table=$("$(dirname "$0")/beside_perftest.sh" --rounds=1 --calls=20 --megabytes=1 --sizes=65536)
echo "$table"
for row in 'echo 64 B, spinning, us' 'echo 64 B, sleeping, us' 'put 64 KiB, MiB/s' 'get 64 KiB, MiB/s'; do
  figures=$(sed -n "s|^$row  *||p" <<<"$table")
  [[ $figures =~ ^[0-9.]+(\ +[0-9.]+){4}$ && ! " $figures " =~ \ 0\.0+\  ]] ||
    { echo "no good row '$row': '$figures'" && exit 1; }
done
