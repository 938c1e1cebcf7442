#!/usr/bin/env bash
# tutti topo measure between hosts, of which two reach each other by a slow link: the file says so,
# and communicators that read it choose by it, all ranks alike.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
tutti=$TEST_BUILD_DIR/tools/tutti
perf=$TEST_BUILD_DIR/perf
reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
work=$(mktemp -d)
trap '"$netns" down; rm -rf "$work"' EXIT
export TUTTI_NETNS=tuttitopo$$ XDG_CACHE_HOME=$work/cache TUTTI_SECRET=topology
machine=$work/cluster.topo

# shellcheck source=tests/netns/together.sh
source "$TEST_SOURCE_DIR/tests/netns/together.sh"
environment() {
  echo TUTTI_RANK="$1" TUTTI_RANK_COUNT=4 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_RANK_COUNT=1 \
    TUTTI_RENDEZVOUS=10.77.0.1:29500
}

"$netns" up 4
if ! "$netns" slow 1 2 50mbit 1gbit 2>"$work/out"; then
  echo "skipped: $(cat "$work/out")"
  exit 77
fi

echo "== the slow link is found"
slow_links() { grep -c "a slow link" "$work/out"; }
for _ in 1 2 3; do  # Other work on this machine may slow another link for a while.
  together "$tutti" topo measure --force -o "$machine" || fail "topo measure"
  says "^  host1 - host2 +0.00[0-9]+ GB/s: a slow link"
  [ "$(slow_links)" = 1 ] && break
done
[ "$(slow_links)" = 1 ] || fail "other links are slow, too"
says "^written to $machine"
grep -Eq "^network host1/.* host2/.* forward=0.00[0-9]+:measured" "$machine" || { cat "$machine"; fail "the file"; }
[ "$(grep -c "^port .*forward=[0-9.e-]*:measured" "$machine")" = 4 ] || { cat "$machine"; fail "ports"; }
"$tutti" topo show --from "$machine" >"$work/out" || fail "topo show"
says "^4 hosts"

echo "== communicators choose by it"
export TUTTI_TOPOLOGY=$machine
together "$tutti" explain all_reduce --bytes 16M || fail explain
says "^Links from: topology of $machine"
says "^Weights: [0-9]+,[0-9]+,[0-9]+,[0-9]+ by rank, as the links of the topology of $machine say"
together "$tutti" explain broadcast --bytes 16M || fail explain
says "^ *[1-9] packed_trees " # Trees are there: not refused.
for collective in all_reduce broadcast all_gather; do
  together "$perf/${collective}_perf" -b 1K -e 1M -f 32 -n 2 -w 1 -c bits || fail "$collective"
  says '^# Out of bounds values : 0 OK'
  says "^# topology: topology of $machine: 4 NUMA nodes, not all joined alike"
  says "^# hosts: 4; between them .* were measured"
done

echo "== a file of other hosts is not used, and one that can't be read is an error on all ranks"
sed 's/hostname=host/hostname=node/' "$machine" >"$work/other.topo"
TUTTI_TOPOLOGY=$work/other.topo together "$perf/all_reduce_perf" -b 8 -e 8 -n 1 || fail "other hosts"
says "^# topology: topology of $work/other.topo is not used: it has no host called host0"
TUTTI_TOPOLOGY=$work/nothing together "$perf/all_reduce_perf" -b 8 -e 8 -n 1 && fail "no error"
[ "$(grep -c "TUTTI_TOPOLOGY=$work/nothing: it can't be read" "$work/out")" = 4 ] || fail "not all ranks say so"
echo "ok"
