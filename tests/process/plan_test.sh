#!/usr/bin/env bash
# Plans as users meet them: printed, changed, checked, run by a sweep; groups and weights beside.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
perf=$TEST_BUILD_DIR/perf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT

fail() { echo "FAILED: $*"; exit 1; }
quick=(-b 4 -e 256K -f 64 -n 2 -w 1)

echo "== printed, checked, and run"
for arguments in "all_reduce --ranks 3" "all_reduce --ranks 3 --algorithm ring" \
    "broadcast --ranks 4 --algorithm double_tree --root 2" "all_to_all --ranks 3 --direct" \
    "all_reduce --ranks 8 --algorithm hierarchical --groups 2,4" "all_gather --ranks 2 --lanes 3" \
    "all_reduce --ranks 3 --algorithm weighted --weights 1,0,2" "reduce_scatter --ranks 3 --multicast"; do
  # shellcheck disable=SC2086 # Options are words.
  "$tutti" plan $arguments >"$work/one.plan" || fail "plan $arguments"
  "$tutti" plan --check "$work/one.plan" >"$work/said" || fail "--check of: $arguments"
  grep -q 'right; contract' "$work/said" || fail "--check says nothing of the result: $arguments"
done
"$tutti" plan all_reduce --ranks 3 --algorithm ring | sed 's/^plan ring/plan handmade/' >"$work/ring.plan"
"$tutti" plan --check "$work/ring.plan" | grep 'contract relaxed: not in canonical order' >/dev/null || fail "contract of a ring"
TUTTI_CONTRACT=relaxed "$perf/all_reduce_perf" --ranks 3 "${quick[@]}" --plan "$work/ring.plan" >"$work/out" ||
  { cat "$work/out"; fail "a sweep with a plan"; }
grep -q '^# Out of bounds values : 0 OK' "$work/out" || fail "wrong values by a plan"
"$tutti" plan all_gather --ranks 2 --algorithm doubling >"$work/gather.plan"
for rank_count in 2 3; do  # A file for 2 ranks; for 3 it says nothing.
  TUTTI_PLAN=$work/gather.plan "$perf/all_gather_perf" --ranks "$rank_count" "${quick[@]}" -R 1 >"$work/out" || fail "TUTTI_PLAN"
  grep -q '^# Out of bounds values : 0 OK' "$work/out" || fail "wrong values by TUTTI_PLAN"
done

echo "== a plan that is not right is refused before anything runs"
sed '0,/^  move.*to(1).*/{/^  move.*to(1).*/d}' "$work/ring.plan" >"$work/broken.plan"
cmp -s "$work/ring.plan" "$work/broken.plan" && fail "nothing was broken"
sed 's/input\[0\]/inptu[0]/' "$work/ring.plan" >"$work/misspelt.plan"
# refused CODE WORDS COMMAND...: this exit code, and on stderr lines with these words.
refused() {
  local expected=$1 words=$2 code=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" = "$expected" ] || { cat "$work/err"; fail "exit code $code, not $expected: $*"; }
  grep -qF -- "$words" "$work/err" || { cat "$work/err"; fail "does not say '$words': $*"; }
}
sweep() { "$perf/all_reduce_perf" --ranks 3 "${quick[@]}" "$@"; }
export TUTTI_TIMEOUT_MS=20000
refused 1 " slot" "$tutti" plan --check "$work/broken.plan"
refused 1 "broken.plan': plan handmade: lane 0: " sweep --plan "$work/broken.plan"
refused 1 ", column " "$tutti" plan --check "$work/misspelt.plan"
refused 1 "misspelt.plan': plan text, line " sweep --plan "$work/misspelt.plan"
refused 1 "set TUTTI_CONTRACT=relaxed" sweep --plan "$work/ring.plan"
refused 1 "No such file" sweep --plan "$work/none.plan"
refused 2 "No such file" "$tutti" plan --check "$work/none.plan"
refused 2 "unknown collective 'all_to_some'" "$tutti" plan all_to_some
refused 2 "unknown all_reduce algorithm 'circle'" "$tutti" plan all_reduce --algorithm circle
refused 2 "does not apply" "$tutti" plan all_reduce --ranks 4 --algorithm hierarchical
refused 2 "--root 4" "$tutti" plan broadcast --ranks 4 --root 4
refused 2 "--ranks" "$tutti" plan all_reduce --ranks 0
refused 2 "--direct" "$tutti" plan all_reduce --ranks 4 --host-ranks 2
refused 1 "groups of 3" "$tutti" plan all_reduce --ranks 8 --groups 2,3

echo "== groups and weights"
for setting in "hierarchical TUTTI_GROUPS=2" "hierarchical TUTTI_GROUPS=2,4" "weighted TUTTI_WEIGHTS=1,2,1,1,0,1,1,1"; do
  read -r algorithm variable <<<"$setting"
  env "$variable" TUTTI_ALGORITHM="all_reduce=$algorithm" \
    "$perf/all_reduce_perf" --ranks 8 -b 64K -e 64K -n 2 -w 1 -c bits >"$work/out" || fail "$setting"
  grep -q '^# Out of bounds values : 0 OK' "$work/out" || fail "$setting: wrong values"
done
TUTTI_WEIGHTS=1,2 refused 1 "TUTTI_WEIGHTS has 2 weights for 3 ranks" sweep
TUTTI_GROUPS=4,6 refused 1 "TUTTI_GROUPS='4,6' is not valid" sweep
echo ok
