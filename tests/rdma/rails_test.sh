#!/usr/bin/env bash
# Two RDMA devices on each of two hosts: long messages go over both; when a cable is pulled in the middle
# of calls the job goes on over the other, and takes the first one again when it is put back, and every
# result is right; when both are pulled, every rank says so; and what does not work when ranks join is
# done without.
set -euo pipefail
# shellcheck source=tests/rdma/in_vm.sh
source "$TEST_SOURCE_DIR/tests/rdma/in_vm.sh" --rxe 4
devices=("rxe0,rxe1" "rxe2,rxe3")

# launch ROUNDS: two ranks that reduce, each on its host; their process ids are in pids. 0: for ever.
pids=()
pulled=0
launch() {
  local rank
  "$netns" up 2
  for rank in 0 1; do
    TUTTI_RANK=$rank TUTTI_RANK_COUNT=2 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_RANK_COUNT=1 \
      TUTTI_RDMA_DEVICES=${devices[rank]} TUTTI_RENDEZVOUS=10.77.0.1:29500 TUTTI_TIMEOUT_MS=30000 \
      timeout 120 "$netns" exec $rank -- \
      "$perf/all_reduce_perf" -b 8 -e 512K -f 65536 -n 3 -N "$1" -w 1 -c bits >$work/$rank 2>&1 &
    pids[rank]=$!
  done
}
# reached COUNT: rank 0 has printed so many lines of 512 KiB.
reached() {
  for ((i = 0; i < 1200; ++i)); do
    [ "$(grep -Ec "^ +524288 " $work/0)" -ge "$1" ] && return
    sleep 0.05
  done
  cat $work/0 $work/1
  fail "the ranks did not get there"
}
# finished REGEX: both end well, and say that.
finished() {
  local rank
  for rank in 0 1; do
    wait "${pids[rank]}" || { cat $work/$rank; fail "rank $rank did not get over it"; }
    grep -E "$1" $work/$rank >/dev/null || { cat $work/$rank; fail "rank $rank did not say: $1"; }
  done
  grep '^# Out of bounds values : 0 OK' $work/0 >/dev/null || { cat $work/0; fail "a result is wrong"; }
  grep '^# transport: verbs' $work/0 >/dev/null || { cat $work/0; fail "not over verbs"; }
  echo "after $SECONDS s: $(grep -Eo "$1" $work/0 | head -n 1)"
}
# over N: bytes that were sent by that interface.
over() { cat "/sys/class/net/rdma$1/statistics/tx_bytes"; }
# mended N: the link of a device is as it was.
mended() {
  ip link set "rdmap$1" up
  for ((i = 0; i < 200; ++i)); do
    grep -q ACTIVE "/sys/class/infiniband/rxe$1/ports/1/state" && return
    sleep 0.05
  done
  fail "rxe$1 did not come back"
}

echo "== the first cable is pulled, which all short messages take: the other one carries on"
before=("$(over 0)" "$(over 1)")
launch 6
reached 2
for rail in 0 1; do
  [ $(($(over $rail) - before[rail])) -gt 500000 ] || { cat $work/0; fail "rxe$rail was not used"; }
done
ip link set rdmap0 down
finished "over rxe[02]:1, 10.99.0.[13] to rxe[02]:1 10.99.0.[13]: .*1 of 2 ways there are left"
mended 0

# said COUNT REGEX: both ranks have said that so many times.
said() {
  local rank
  for rank in 0 1; do
    for ((i = 0; ; ++i)); do
      [ "$(grep -Ec "$2" $work/$rank)" -ge "$1" ] && break
      [ $i -lt 1200 ] || { cat $work/$rank; fail "rank $rank did not say: $2"; }
      kill -0 "${pids[rank]}" 2>/dev/null || { cat $work/$rank; fail "rank $rank ended before it said: $2"; }
      sleep 0.05
    done
  done
}
echo "== a cable is pulled and put back: on the host of rank 0, on that of rank 1"
launch 0
reached 1
for device in 0 2; do
  pulled=$((pulled + 1))
  begun=$SECONDS
  ip link set "rdmap$device" down
  said "$pulled" "over rxe[02]:1, .*1 of 2 ways there are left"
  lost=$SECONDS
  mended "$device"
  said "$pulled" "over rxe[02]:1, 10.99.0.[13] to rxe[02]:1 10.99.0.[13]: back; 2 of 2 ways there are used"
  echo "rxe$device: lost after $((lost - begun)) s, back $((SECONDS - lost)) s after it was put back"
  sent=$(over "$device")
  for ((i = 0; i < 400 && $(over "$device") - sent < 500000; ++i)); do sleep 0.05; done
  [ $(($(over "$device") - sent)) -ge 500000 ] || { cat $work/0; fail "rxe$device is not used again"; }
done
reached $(($(grep -Ec "^ +524288 " $work/0) + 2))
kill "${pids[@]}"
wait "${pids[@]}" || true # They would go on for ever.
awk '/^ +[0-9]+ / && NF >= 13 { ++lines; wrong += $9 + $13 } END { exit wrong != 0 || lines < 3 }' $work/0 ||
  { cat $work/0; fail "a result is wrong"; }

echo "== both are pulled"
launch 100000
reached 1
ip link set rdmap0 down
ip link set rdmap1 down
for rank in 0 1; do
  if wait "${pids[rank]}"; then fail "rank $rank has not failed"; fi
  grep -E "rank $((1 - rank)) can't be reached any more: .*verbs: rank $((1 - rank)) \(host$((1 - rank))\) over rxe" \
    $work/$rank >/dev/null || { cat $work/$rank; fail "rank $rank does not say what has failed"; }
done
mended 0
mended 1

echo "== the second one never got anything there"
tc qdisc add dev rdma1 root netem loss 100%
launch 1
finished "over rxe[13]:1, .* no acknowledgement.*; 1 of 2 ways there are left"
echo "ok"
