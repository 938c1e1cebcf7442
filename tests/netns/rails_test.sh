#!/usr/bin/env bash
# Two interfaces on each of two hosts: connections over both; when one cable is pulled in the middle of
# calls the job goes on over the other, and every result is right; when both are, every rank says so
# within the deadline.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
perf=$TEST_BUILD_DIR/perf
work=$(mktemp -d)
reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
trap '"$netns" down; rm -rf "$work"' EXIT
export TUTTI_NETNS=tuttirails$$ TUTTI_TRANSPORT=tcp
rails=2
# shellcheck source=tests/netns/two_ranks.sh
source "$TEST_SOURCE_DIR/tests/netns/two_ranks.sh"

# over RAIL: bytes that host 0 has sent there.
over() { "$netns" exec 0 -- cat "/sys/class/net/eth$1/statistics/tx_bytes"; }

echo "== the first one is pulled, which all small messages take: the other one carries on"
check=bits rounds=40
start
[ "$(over 0)" -gt 1000000 ] || fail "eth0 was not used"
[ "$(over 1)" -gt 1000000 ] || fail "eth1 was not used"
"$netns" cut 1 0
for rank in 0 1; do
  wait "${pids[rank]}" || { cat "$work/$rank"; fail "rank $rank did not get over it"; }
  grep -E "over eth0, .*1 of 2 ways there are left" "$work/$rank" >/dev/null ||
    { cat "$work/$rank"; fail "rank $rank said nothing of eth0"; }
done
grep '^# Out of bounds values : 0 OK' "$work/0" >/dev/null || { cat "$work/0"; fail "a result is wrong"; }

echo "== both are pulled"
check="" rounds=""
start
"$netns" cut 1 0
"$netns" cut 1 1
for rank in 0 1; do
  ended "$rank" "rank $((1 - rank)) can't be reached any more: .* no answer|waited 6000 ms for rank $((1 - rank))"
done
echo "ok"
