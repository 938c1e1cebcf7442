#!/usr/bin/env bash
# What a rank says when the other one's cable is pulled, when it is killed, and when it never comes:
# who, on which host, over which interface, doing what.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
bench=$TEST_BUILD_DIR/perf/tcp_bench
export TUTTI_NETNS=tuttitest$$

reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
dir=$(mktemp -d)
trap '"$netns" down; rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*" >&2; tail -n 5 "$dir"/* >&2; exit 1; }

# rank R: in the background, on host R; its process id is in pids. Its first pings, by frames, whose
# errors these are, take longer than all of this.
pids=()
rank() {
  local rank=$1
  TUTTI_RANK=$rank TUTTI_RANK_COUNT=2 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_RANK_COUNT=1 \
    TUTTI_RENDEZVOUS=10.77.0.1:29500 \
    "$netns" exec "$rank" -- "$bench" --rounds 1 --pings 1000000 --timeout 6 \
    >"$dir/$rank.out" 2>"$dir/$rank.err" &
  pids[rank]=$!
}
start() {
  rm -f "$dir"/*
  "$netns" up 2
  rank 0
  rank 1
  for ((i = 0; i < 1000; ++i)); do  # Rank 0 says where it is connected.
    grep -q "connections" "$dir/0.out" 2>/dev/null && return
    sleep 0.02
  done
  fail "the ranks did not meet"
}
# ended RANK REGEX: the rank ends by itself, with that error.
ended() {
  if wait "${pids[$1]}"; then fail "rank $1 has not failed"; fi
  grep -Eq "$2" "$dir/$1.err" || fail "rank $1 said: $(cat "$dir/$1.err")"
}

start
"$netns" cut 1
ended 0 "rank 1 \(host1\) over eth0, 10.77.0.1:[0-9]+ to 10.77.0.2:[0-9]+: no answer for [0-9.]+ s .* while (sending|receiving)"
ended 1 "rank 0 \(host0\) over eth0, 10.77.0.2:[0-9]+ to 10.77.0.1:[0-9]+: no answer for [0-9.]+ s .* while (sending|receiving)"

start
kill -9 "${pids[1]}"
wait "${pids[1]}" 2>/dev/null || true
ended 0 "rank 1 \(host1\) over eth0, .*its process has ended while (sending|receiving)"
echo "ok"
