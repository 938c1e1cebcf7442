#!/usr/bin/env bash
# Collectives between hosts: every one checked over TCP; and when a rank or a link dies, every rank
# says which, within the deadline.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
perf=$TEST_BUILD_DIR/perf
work=$(mktemp -d)
reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
trap '"$netns" down; rm -rf "$work"' EXIT
export TUTTI_NETNS=tuttiwire$$
# shellcheck source=tests/netns/two_ranks.sh
source "$TEST_SOURCE_DIR/tests/netns/two_ranks.sh"

echo "== every collective, between 2 hosts of 1 and 2 ranks, and between 4"
for hosts in "2 1" "2 2" "4 1"; do
  for collective in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all; do
    # shellcheck disable=SC2086 # Two words.
    "$netns" run $hosts -- "$perf/${collective}_perf" -b 4 -e 256K -f 16 -n 2 -w 1 -c bits >"$work/out" 2>&1 ||
      { cat "$work/out"; fail "$collective between $hosts"; }
    grep -q '^# Out of bounds values : 0 OK' "$work/out" || { cat "$work/out"; fail "$collective between $hosts"; }
    grep -q '^# transport: tcp' "$work/out" || { cat "$work/out"; fail "not over tcp"; }
    groups=
    [ "${hosts#* }" = 1 ] || groups="; groups of ${hosts#* }"
    grep -q "^# hosts: ${hosts% *}; between them .* are assumed$groups\$" "$work/out" ||
      { cat "$work/out"; fail "it does not know its hosts ($hosts)"; }
  done
done

echo "== a rank is killed"
start
kill_rank 1
ended 0 "rank 1 can't be reached any more: .*rank 1 \(host1\) over eth0, .*its process has ended"

echo "== a cable is pulled"
start
"$netns" cut 1
for rank in 0 1; do
  ended "$rank" "rank $((1 - rank)) can't be reached any more: .*\(host$((1 - rank))\) over eth0.* no answer|waited 6000 ms for rank $((1 - rank))"
done
echo "ok"
