#!/usr/bin/env bash
# Collectives between hosts (network namespaces) that each have an RDMA device: over RDMA without being
# told so, every one checked.
set -euo pipefail
# shellcheck source=tests/rdma/in_vm.sh
source "$TEST_SOURCE_DIR/tests/rdma/in_vm.sh" --rxe 3
# The devices belong to no namespace: each rank uses that of its number.
# shellcheck disable=SC2016 # The inner shell is to expand them.
own_device=(bash -c 'export TUTTI_RDMA_DEVICES=rxe$TUTTI_RANK; exec "$@"' bash)

# checked TRANSPORT WHAT: what a sweep in $work/out says of itself.
checked() {
  grep -q '# Out of bounds values : 0 OK' $work/out || { cat $work/out; fail "$2"; }
  grep -q "# transport: $1" $work/out || { cat $work/out; fail "$2: not over $1"; }
}
echo "== collectives, between 2 and 3 hosts, and on one"
for each in "all_reduce 2" "all_gather 3" "reduce_scatter 2" "all_to_all 3" "broadcast 2" "reduce 3"; do
  read -r collective hosts <<<"$each"
  "$netns" run "$hosts" 1 -- "${own_device[@]}" "$perf/${collective}_perf" -b 4 -e 64K -f 128 -n 2 -w 1 -c bits \
    >$work/out 2>&1 || { cat $work/out; fail "$collective between $hosts hosts"; }
  checked verbs "$collective between $hosts hosts"
done
TUTTI_TRANSPORT=verbs "$tutti" run -n 3 -- "$perf/all_reduce_perf" -b 4 -e 64K -f 128 -n 2 -w 1 -c bits \
  >$work/out 2>&1 || { cat $work/out; fail "all_reduce on one host"; }
checked verbs "all_reduce on one host"
TUTTI_TRANSPORT=tcp "$netns" run 2 1 -- "$perf/all_reduce_perf" -b 4 -e 4K -f 32 -n 2 -w 1 -c bits >$work/out 2>&1 ||
  { cat $work/out; fail "TUTTI_TRANSPORT=tcp"; }
checked tcp "TUTTI_TRANSPORT=tcp goes round it"
echo "== packets are lost now and then"
tc qdisc add dev rdma0 root netem loss 1%
"$netns" run 2 1 -- "${own_device[@]}" "$perf/all_reduce_perf" -b 4 -e 64K -f 128 -n 2 -w 1 -c bits >$work/out 2>&1 ||
  { cat $work/out; fail "with 1 % loss"; }
checked verbs "with 1 % loss"
echo "ok"
