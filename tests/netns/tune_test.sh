#!/usr/bin/env bash
# tutti tune between hosts, by whatever launches its ranks: rank 0 writes a table, which communicators
# of the same hosts find and others leave alone; a host that carries less than the others gets less to
# do, and tutti explain says so.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
tutti=$TEST_BUILD_DIR/tools/tutti
perf=$TEST_BUILD_DIR/perf
reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
work=$(mktemp -d)
trap '"$netns" down; rm -rf "$work"' EXIT
export TUTTI_NETNS=tuttitune$$ XDG_CACHE_HOME=$work/cache
table=$XDG_CACHE_HOME/tutti/tuning.json
tune=("$tutti" tune --quick --force --max-bytes 16K --collective all_reduce --collective gather)

# shellcheck source=tests/netns/together.sh
source "$TEST_SOURCE_DIR/tests/netns/together.sh"
# As torchrun would start them.
environment() {
  echo RANK="$1" WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
    TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0
}
# measured HOSTS TRANSPORT: what tutti tune printed, once.
measured() {
  says "ranks on $1 hosts, [0-9]+ CPUs?, $2: adds at"
  says "in_process +between threads +[0-9.]+ us"
  says "$2 +between hosts +[0-9.]+ us +[0-9.]+ GB/s"
  says "^  gather +plain +[a-z]"
  [ "$(grep -c '^written to' "$work/out")" = 1 ] || fail "not one rank writes the table"
}
# found HOSTS RANKS: the table, by as many ranks that reduce.
found() {
  timeout 150 "$netns" run "$1" "$2" -- "$perf/all_reduce_perf" -b 8 -e 64K -f 32 -n 2 -w 1 -c bits \
    >"$work/out" 2>&1 || fail "all_reduce with the table"
  says '^# Out of bounds values : 0 OK'
  says "^# hosts: $1; between them .* were measured"
  says "^# tuning: $table \(machine [0-9a-f]{16}, ${TUTTI_TRANSPORT:-tcp}, "
}

transports=(tcp)
"$tutti" info | grep "^  .*, ucx" >/dev/null && transports+=(ucx)
for transport in "${transports[@]}"; do
  echo "== over $transport, between 2 hosts of 2 ranks"
  export TUTTI_TRANSPORT=$transport UCX_TLS=tcp
  rm -f "$table"
  timeout 150 "$netns" run 2 2 -- "${tune[@]}" >"$work/out" 2>&1 || fail "tune over $transport"
  measured 2 "$transport"
  says "shared_memory +between ranks of a host +[0-9.]+ us"
  says "^ +mapped +[a-z]"
  timeout 150 "$netns" run 2 2 -- "$tutti" explain all_reduce --bytes 8K --mapped >"$work/out" 2>&1 ||
    fail "explain --mapped"
  says "between 4 ranks on 2 hosts, .* mapped buffers"
  says "^Taken: .*as measured here"
  found 2 2
done
unset TUTTI_TRANSPORT UCX_TLS

echo "== other hosts leave it alone"
TUTTI_TRANSPORT=${transports[-1]} UCX_TLS=tcp timeout 150 "$netns" run 4 1 -- "$perf/all_reduce_perf" \
  -b 8 -e 8 -n 1 >"$work/out" 2>&1 || fail "all_reduce"
says "tuning: $table is not used: made for ranks that share hosts otherwise"

cat >"$work/rsh" <<END
#!/bin/bash
host=\${1##*.}
shift
exec env -i PATH="\$PATH" TUTTI_NETNS=$TUTTI_NETNS $netns exec \$((host - 1)) -- "\$@"
END
chmod +x "$work/rsh"
"$netns" up 4
echo "== by tutti run --hosts"
TUTTI_RSH=$work/rsh timeout 150 "$tutti" run --no-prefix --hosts 10.77.0.1,10.77.0.2 -- "${tune[@]}" \
  --output "$table" >"$work/out" 2>&1 || fail "tutti run --hosts"
measured 2 tcp
! grep -Eq "^ +mapped" "$work/out" || fail "mapped buffers are measured where each rank is alone"
found 2 1
! "$netns" run 2 1 -- "$tutti" explain all_reduce --mapped >"$work/out" 2>&1 || fail "explain --mapped"
says "explain: --mapped: no two of these ranks share a host"
"$netns" up 4

if ! "$netns" limit 3 200mbit 2>"$work/out"; then
  echo "not tested: links that differ, as $(cat "$work/out")"
  echo "ok"
  exit 0
fi
echo "== as torchrun does it, with a link that carries less"
together "${tune[@]}" || fail tune
measured 4 tcp
says "^ +host3 +0.0[0-9]+ GB/s"
says "^  weights +[0-9]+,[0-9]+,[0-9]+,0$"
together "$tutti" explain all_reduce --bytes 16M || fail explain
says "^all_reduce of 16 MiB of float32 between 4 ranks on 4 hosts"
says "^Weights: [0-9]+,[0-9]+,[0-9]+,0 by rank, as .*host3 carries 0.0"
says "^ *[0-9]+ weighted +1 "
says "^Taken: .*as measured here"
[ "$(grep -c '^Taken: ' "$work/out")" = 1 ] || fail "not one rank explains"
together "$perf/all_reduce_perf" -b 16K -e 256K -f 16 -n 2 -w 1 -c bits || fail all_reduce
says '^# Out of bounds values : 0 OK'
says "^# hosts: 4; .* were measured.*, 0.0[0-9]+ at host3; weights [0-9]+,[0-9]+,[0-9]+,0$"
echo "ok"
