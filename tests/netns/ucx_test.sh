#!/usr/bin/env bash
# Collectives between hosts over UCX: every one checked, over what UCX finds and over single ways; and
# when a rank or a link dies, every rank says which, within the deadline.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
perf=$TEST_BUILD_DIR/perf
reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
"$TEST_BUILD_DIR/tools/tutti" info | grep "^  .*, ucx" >/dev/null || { echo "skipped: a build without UCX"; exit 77; }
work=$(mktemp -d)
trap '"$netns" down; rm -rf "$work"' EXIT
export TUTTI_NETNS=tuttiucx$$ TUTTI_TRANSPORT=ucx
# The leak sanitizer of Clang 14 crashes here, in a thread whose thread-local memory came with UCX's modules;
# unit/ucx_test and conformance/ look for leaks.
export ASAN_OPTIONS=detect_leaks=0
# shellcheck source=tests/netns/two_ranks.sh
source "$TEST_SOURCE_DIR/tests/netns/two_ranks.sh"

# check HOSTS RANKS COLLECTIVE
check() {
  timeout 120 "$netns" run "$1" "$2" -- "$perf/$3_perf" -b 4 -e 256K -f 16 -n 2 -w 1 -c bits \
    >"$work/out" 2>&1 || { cat "$work/out"; fail "$3 between $1 hosts of $2 ranks"; }
  grep -q '^# Out of bounds values : 0 OK' "$work/out" || { cat "$work/out"; fail "$3 is wrong"; }
  grep -q '^# transport: ucx' "$work/out" || { cat "$work/out"; fail "not over ucx"; }
}

# Namespaces of one machine share memory for UCX: by itself it mixes TCP with reading each other's
# memory. Shared memory alone has no notion of a peer that goes; it works all the same.
echo "== collectives, between 2 hosts of 1 and 2 ranks, and between 4"
for collective in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all; do
  UCX_TLS=tcp check 2 2 "$collective"
done
for ways in tcp all shm; do
  for hosts in "2 1" "4 1" "4 2"; do
    # shellcheck disable=SC2086 # Two words.
    UCX_TLS=$ways check $hosts all_reduce
  done
  UCX_TLS=$ways check 2 1 all_to_all
done

export UCX_TLS=tcp

echo "== a rank is killed"
start
kill_rank 1
ended 0 "rank 1 can't be reached any more: ucx: rank 1 \(host1\) over tcp/eth0: .*its process has ended"

echo "== a cable is pulled"
start
"$netns" cut 1
for rank in 0 1; do
  ended "$rank" "rank $((1 - rank)) can't be reached any more: ucx: rank $((1 - rank)) \(host$((1 - rank))\) over tcp/eth0|waited 6000 ms for rank $((1 - rank))"
done

echo "== nobody comes"
"$netns" up 2
for rank in 0 1; do
  UCX_NET_DEVICES=$([ "$rank" = 0 ] && echo eth0 || echo lo) TUTTI_RANK=$rank TUTTI_RANK_COUNT=2 \
    TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_RANK_COUNT=1 TUTTI_RENDEZVOUS=10.77.0.1:29500 \
    TUTTI_TIMEOUT_MS=4000 timeout 60 "$netns" exec "$rank" -- "$perf/all_reduce_perf" -n 1 \
    >"$work/$rank" 2>&1 &
  pids[rank]=$!
done
for rank in 0 1; do
  ended "$rank" "ucx: (no way to )?rank $((1 - rank)) \(host$((1 - rank))\).*(UCX_TLS|its process has ended)"
done
echo "ok"
