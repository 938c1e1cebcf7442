#!/usr/bin/env bash
# Two interfaces on each of two hosts: connections over both; when one cable is pulled in the middle of
# calls the job goes on over the other, and over both once it is plugged in again, and every result is
# right; when both are pulled, every rank says so within the deadline.
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

# both_say TEXT: within half a minute.
both_say() {
  local rank
  for rank in 0 1; do
    for ((i = 0; i < 600; ++i)); do
      grep -E "$1" "$work/$rank" >/dev/null && break
      kill -0 "${pids[rank]}" 2>/dev/null || i=600
      sleep 0.05
    done
    grep -E "$1" "$work/$rank" >/dev/null || { cat "$work/$rank"; fail "rank $rank did not say: $1"; }
  done
}
# grows RAIL: within half a minute host 0 sends a megabyte more by it.
grows() {
  local before
  before=$(over "$1")
  for ((i = 0; i < 600; ++i)); do
    [ "$(over "$1")" -gt $((before + 1000000)) ] && return
    sleep 0.05
  done
  cat "$work/0" "$work/1"
  fail "eth$1 is not used"
}

# sound: a round ends that did not before, and all results of all rounds are right.
sound() {
  local before
  before=$(grep -c "^# Out of bounds values" "$work/0" || true)
  for ((i = 0; i < 600; ++i)); do
    [ "$(grep -c '^# Out of bounds values' "$work/0")" -gt "$before" ] && break
    sleep 0.05
  done
  [ "$i" -lt 600 ] || { cat "$work/0" "$work/1"; fail "the ranks stand still"; }
  ! grep '^# Out of bounds values' "$work/0" | grep -v ': 0 OK' || { cat "$work/0"; fail "a result is wrong"; }
}

# The first one is that which all small messages take.
for rail in 0 1; do
  echo "== the cable of eth$rail is pulled, the other one carries on; it is plugged in, and both do"
  check=bits
  start
  grows 0
  grows 1
  "$netns" cut 1 $rail
  both_say "over eth$rail, .*1 of 2 ways there are left"
  grows $((1 - rail))
  "$netns" mend 1 $rail
  both_say "over eth$rail, .*: back; 2 of 2 ways there are used"
  grows 0
  grows 1
  sound
  for rank in 0 1; do kill_rank $rank; done
done

echo "== both are pulled"
check=""
start
"$netns" cut 1 0
"$netns" cut 1 1
for rank in 0 1; do
  ended "$rank" "rank $((1 - rank)) can't be reached any more: .* no answer|waited 6000 ms for rank $((1 - rank))"
done
echo "ok"
