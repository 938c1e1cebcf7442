#!/usr/bin/env bash
# When a rank, a link or a device dies, every rank says which, on which host, over which devices, within
# the deadline. Hosts are network namespaces, each with an RDMA device of its own.
set -euo pipefail
# shellcheck source=tests/rdma/in_vm.sh
source "$TEST_SOURCE_DIR/tests/rdma/in_vm.sh" --rxe 2

# launch: two ranks that reduce for ever, each on its host; their process ids are in pids.
pids=()
launch() {
  local rank
  "$netns" up 2
  for rank in 0 1; do
    TUTTI_RANK=$rank TUTTI_RANK_COUNT=2 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_RANK_COUNT=1 TUTTI_RDMA_DEVICES=rxe$rank \
      TUTTI_RENDEZVOUS=10.77.0.1:29500 TUTTI_TIMEOUT_MS=${timeout_ms:-8000} "$netns" exec $rank -- \
      "$perf/all_reduce_perf" -b 8 -e 32K -f 4096 -n 5 -N 100000 -w 1 >$work/$rank 2>&1 &
    pids[rank]=$!
  done
}
start() {
  launch
  for ((i = 0; i < 1000; ++i)); do # Rank 0 prints a line for each size.
    grep -Eq "^ +32768 " $work/0 && return
    sleep 0.05
  done
  cat $work/0 $work/1
  fail "the ranks did not start"
}
# ended RANK REGEX: the rank ends by itself, with that error.
ended() {
  if wait "${pids[$1]}"; then fail "rank $1 has not failed"; fi
  grep -Eq "$2" $work/"$1" || { cat $work/"$1"; fail "rank $1 did not say: $2"; }
  echo "rank $1, after $SECONDS s: $(grep -Eo "$2.{0,80}" $work/"$1" | head -n 1)"
}
# mended N: the link of a device is as it was.
mended() {
  tc qdisc del dev "rdma$1" root 2>/dev/null || true
  ip link set "rdma$1" up
  ip link set "rdmap$1" up
  local other
  for other in 0 1; do
    [ $other = "$1" ] ||
      ip neigh replace 10.99.0.$((other + 1)) lladdr "$(cat /sys/class/net/rdma$other/address)" dev "rdma$1" nud permanent
  done
  for ((i = 0; i < 200; ++i)); do
    grep -q ACTIVE "/sys/class/infiniband/rxe$1/ports/1/state" && return
    sleep 0.05
  done
  fail "rxe$1 did not come back"
}
there=([0]="rank 1 \(host1\) over rxe0:1, 10.99.0.1 to rxe1:1 10.99.0.2: "
  [1]="rank 0 \(host0\) over rxe1:1, 10.99.0.2 to rxe0:1 10.99.0.1: ")

echo "== a rank is killed"
start
kill -9 "${pids[1]}"
wait "${pids[1]}" 2>/dev/null || true
ended 0 "rank 1 can't be reached any more: .*${there[0]}writing [0-9]+ bytes: no acknowledgement: its process has ended"

echo "== a cable is pulled"
start
ip link set rdmap1 down
for rank in 0 1; do ended $rank "rank $((1 - rank)) can't be reached any more: .*${there[rank]}"; done
mended 1

echo "== a rank's own link goes down"
start
ip link set rdma0 down
ended 0 "rank 1 can't be reached any more: .*${there[0]}.*; rxe0:1: the link went down [0-9.]+ s ago"
ended 1 "rank 0 can't be reached any more: .*${there[1]}"
mended 0

echo "== every packet is lost"
start
tc qdisc add dev rdma1 root netem loss 100%
for rank in 0 1; do ended $rank "rank $((1 - rank)) can't be reached any more: .*${there[rank]}"; done
mended 1

echo "== a rank is stopped"
start
kill -STOP "${pids[1]}"
ended 0 "waited 8000 ms for rank 1"
kill -9 "${pids[1]}"
wait "${pids[1]}" 2>/dev/null || true

echo "== packets of RDMA never got there"
tc qdisc add dev rdma1 root netem loss 100%
launch
for rank in 0 1; do ended $rank "${there[rank]}|rank $((1 - rank)): verbs: rank $rank"; done
mended 1

echo "== memory may not be locked"
setpriv --reuid 65534 --regid 65534 --clear-groups bash -c "ulimit -l 64; TUTTI_TRANSPORT=verbs exec '$tutti' run -n 2 -- \
  '$perf/all_reduce_perf' -b 8 -e 8" >$work/out 2>&1 && fail "64 KiB of locked memory were enough"
grep -Eq "verbs: rxe[0-9]:1: .*: .*ulimit -l" $work/out || { cat $work/out; fail "the limit is not named"; }
echo "ok"
