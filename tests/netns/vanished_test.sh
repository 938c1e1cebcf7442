#!/usr/bin/env bash
# A host that vanishes without a word is noticed after 10 s, by ranks that send to it and by ranks that only
# wait for it, long before the deadline of a call. A process that is stopped has not vanished.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
export TUTTI_NETNS=tuttivanished$$
work=$(mktemp -d)
trap '"$netns" down; rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; tail -n 5 "$work"/* >&2; exit 1; }

# start SECONDS: a rank on each of two hosts makes mixed calls for so long.
start() {
  local rank
  pids=()
  "$netns" up 2
  for rank in 0 1; do
    "$netns" exec $rank -- env TUTTI_RANK=$rank TUTTI_RANK_COUNT=2 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_RANK_COUNT=1 \
      TUTTI_RENDEZVOUS=10.77.0.1:29500 TUTTI_SECRET=test TUTTI_TRANSPORT=tcp TUTTI_TIMEOUT_MS=60000 \
      "$TEST_BUILD_DIR/tests/tutti_soak" --member --seconds "$1" >"$work/$rank" 2>&1 &
    pids+=($!)
  done
  for rank in 0 1; do
    until grep -q "^joined" "$work/$rank"; do
      kill -0 "${pids[rank]}" 2>/dev/null || fail "rank $rank did not join"
      sleep 0.02
    done
  done
}

start 600
sleep 0.3
"$netns" cut 1
SECONDS=0
for rank in 0 1; do
  code=0
  wait "${pids[rank]}" || code=$?
  [ "$code" = 3 ] || fail "rank $rank ended with $code"
  grep -Eq "rank $((1 - rank)) can't be reached any more: .*no answer for 10 s \(a sixth of TUTTI_TIMEOUT_MS" "$work/$rank" ||
    fail "rank $rank said: $(cat "$work/$rank")"
done
# Only the deadline of 60 s is far enough away to tell.
[ "$SECONDS" -lt 45 ] || fail "it took $SECONDS s"
"$netns" down

start 16
kill -STOP "${pids[1]}"
sleep 13
kill -CONT "${pids[1]}"
for rank in 0 1; do
  wait "${pids[rank]}" || fail "a stopped process is taken for a host that vanished"
done
echo "ok"
