#!/usr/bin/env bash
# The only interface that ranks may use has no carrier in the moment in which they connect: they wait
# for it, for 2 seconds; if it does not come, the error names the interface.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
perf=$TEST_BUILD_DIR/perf
work=$(mktemp -d)
reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
trap '"$netns" down; rm -rf "$work"' EXIT
export TUTTI_NETNS=tutticarrier$$ TUTTI_TRANSPORT=tcp TUTTI_NET_INTERFACES=eth1
fail() { cat "$work"/*; echo "FAILED: $*" >&2; exit 1; }

# start: two ranks that meet over eth0, while eth1 has no carrier on either host.
start() {
  "$netns" up 2 2
  "$netns" cut 0 1
  "$netns" cut 1 1
  for rank in 0 1; do
    TUTTI_RANK=$rank TUTTI_RANK_COUNT=2 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_RANK_COUNT=1 \
      TUTTI_RENDEZVOUS=10.77.0.1:29500 timeout 60 "$netns" exec "$rank" -- \
      "$perf/all_reduce_perf" -b 8 -e 8 -n 20 -w 1 >"$work/$rank" 2>&1 &
    pids[rank]=$!
  done
}

echo "== the carrier comes back"
start
sleep 1
for rank in 0 1; do
  kill -0 "${pids[rank]}" || fail "rank $rank did not wait for a carrier"
done
"$netns" mend 0 1
"$netns" mend 1 1
for rank in 0 1; do wait "${pids[rank]}" || fail "rank $rank failed, with a carrier"; done

echo "== it does not"
start
for rank in 0 1; do
  ! wait "${pids[rank]}" || fail "rank $rank has not failed"
  grep -q "no interface fits; there is .*eth1 (no carrier)" "$work/$rank" || fail "rank $rank does not say why"
done
echo "ok"
