#!/usr/bin/env bash
# The last calls of a job whose hosts have a slow link. Ranks that are done leave at once, while data
# for others is still under way. No rank fails.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
rank=$TEST_BUILD_DIR/tests/netns_hosts_rank
work=$(mktemp -d)
reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
trap '"$netns" down; rm -rf "$work"' EXIT
export TUTTI_NETNS=tuttileaving$$

"$netns" up 3
for slow in 0 2; do
  rm -f "$work"/*
  pids=()
  for ((r = 0; r < 3; ++r)); do
    TUTTI_RANK=$r TUTTI_RANK_COUNT=3 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_RANK_COUNT=1 TUTTI_JOB=leave$slow \
      TUTTI_RENDEZVOUS=10.77.0.1:29500 TUTTI_TIMEOUT_MS=20000 timeout 60 "$netns" exec "$r" -- \
      "$rank" leave "$work" >"$work/out.$r" 2>&1 &
    pids[r]=$!
  done
  for ((i = 0; i < 1000; ++i)); do
    [ "$(find "$work" -name 'ready.*' | wc -l)" = 3 ] && break
    sleep 0.02
  done
  # Data of a rank for one peer arrives a tenth of a second before its data for the next.
  ip netns exec "$TUTTI_NETNS-$slow" tc qdisc replace dev eth0 root tbf rate 16kbit burst 1600 latency 10s ||
    { echo "skipped: this kernel does not shape traffic"; exit 77; }
  touch "$work/go"
  for ((r = 0; r < 3; ++r)); do
    wait "${pids[r]}" || { cat "$work"/out.*; echo "FAILED: rank $r, host $slow slow" >&2; exit 1; }
  done
  ip netns exec "$TUTTI_NETNS-$slow" tc qdisc del dev eth0 root
done
echo "ok"
