#!/usr/bin/env bash
# The sweeps as their users see them: every collective between processes and threads, files for
# machines, and one line for what is wrong.
set -euo pipefail
perf=$TEST_BUILD_DIR/perf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT

fail() { echo "FAILED: $*"; exit 1; }
quick=(-b 4 -e 256K -f 16 -n 2 -w 1)

echo "== every collective, verified, out of place and in place"
for collective in all_reduce all_gather reduce_scatter broadcast; do
  for how in "--ranks 3" "-t 3" "--ranks 2 -R 1" "--ranks 2 -c bits" "--ranks 2 -z 0 -c 3"; do
    # shellcheck disable=SC2086 # Options are words.
    "$perf/${collective}_perf" $how "${quick[@]}" >"$work/out" 2>&1 || { cat "$work/out"; fail "$collective $how"; }
    grep -q '^# Out of bounds values : 0 OK' "$work/out" || { cat "$work/out"; fail "$collective $how"; }
    [ "$(grep -cE '^ +[0-9]+ ' "$work/out")" -ge 4 ] || fail "$collective $how: too few lines"
  done
done
"$perf/all_reduce_perf" --ranks 2 "${quick[@]}" -o all -d all >"$work/out" || fail "all types and operations"
grep -q 'f8e5m2' "$work/out" || fail "no 8-bit floats in: -d all"

echo "== files for machines and people"
"$perf/all_reduce_perf" --ranks 2 "${quick[@]}" -J "$work/s.json" --csv "$work/s.csv" --plot "$work/s.svg" >"$work/out"
python3 - "$work" <<'PY'
import csv, json, sys, xml.dom.minidom
work = sys.argv[1]
json.load(open(work + "/s.json"))
rows = list(csv.reader(open(work + "/s.csv")))
assert len(rows) == 1 + 5, rows
assert all(len(row) == len(rows[0]) for row in rows), rows
xml.dom.minidom.parse(work + "/s.svg")
PY
"$perf/all_reduce_perf" --ranks 2 -b 8 -e 16M -f 2097152 -n 2 --bound >"$work/bound" || fail "--bound"
! grep -qE '^ +[0-9].* 0\.0$' "$work/bound" || { cat "$work/bound"; fail "0.0 % of the bound"; }
awk '/^ +[0-9]/ && length($0) > 120 { exit 1 }' "$work/out" || fail "rows wider than nccl-tests'"

echo "== TUTTI_TRACE: both ranks' calls in one file, with arrows between the ranks"
for how in "--ranks 2" "-t 2"; do
  rm -f "$work/trace.json"
  # shellcheck disable=SC2086 # Options are words.
  TUTTI_TRACE="$work/trace.json" "$perf/all_reduce_perf" $how -b 1M -e 4M -f 4 -n 5 -w 1 >"$work/out" 2>&1 ||
    { cat "$work/out"; fail "a trace of $how"; }
  python3 - "$work/trace.json" "$how" <<'PY'
import json, sys
events = json.load(open(sys.argv[1]))
how = sys.argv[2]
slices = [e for e in events if e["ph"] == "X" and e.get("cat") == "call"]
sums = [e for e in slices if e["args"]["path"] == "plan" and e["name"].startswith("all_reduce of ")]
by_rank = {rank: {e["args"]["call"] for e in sums if e["args"]["rank"] == rank} for rank in (0, 1)}
# Two sizes, out of place and in place, a warm-up and five calls of each.
assert by_rank[0] == by_rank[1] and len(by_rank[0]) >= 2 * 2 * 6, (how, by_rank)
assert {e["args"]["bytes"] for e in sums} == {1 << 20, 4 << 20}, (how, sums[0])
begins, ends = ({e["id"]: e for e in events if e["ph"] == phase} for phase in "sf")
assert begins and begins.keys() == ends.keys(), (how, len(begins), len(ends))


def encloses(slice, event):
    return (slice["pid"], slice["tid"]) == (event["pid"], event["tid"]) and \
        slice["ts"] <= event["ts"] <= slice["ts"] + slice["dur"]


for id, begin in begins.items():
    end = ends[id]
    assert {begin["tid"], end["tid"]} == {0, 1}, (how, begin, end)  # From one rank to the other,
    assert begin["ts"] <= end["ts"], (how, begin, end)
    call = int(id.split(".")[1])  # in one call: there is a slice of it at both ends.
    for event in (begin, end):
        assert any(encloses(s, event) for s in slices if s["args"]["call"] == call), (how, event)
PY
done

echo "== commands that only look leave the trace alone"
tutti=$TEST_BUILD_DIR/tools/tutti
cp "$work/trace.json" "$work/before.json"
for looks in "info" "run -n 2 -- $tutti explain all_reduce --bytes 1M"; do
  # shellcheck disable=SC2086 # Words.
  TUTTI_TRACE="$work/trace.json" "$tutti" $looks >"$work/out" 2>&1 || { cat "$work/out"; fail "$looks"; }
  cmp "$work/trace.json" "$work/before.json" || fail "$looks has overwritten the trace"
  # shellcheck disable=SC2086 # Words.
  TUTTI_TRACE=/nonexistent/trace.json "$tutti" $looks >"$work/out" 2>"$work/err" || fail "$looks"
  [ ! -s "$work/err" ] || { cat "$work/err"; fail "$looks, where no trace can be written"; }
done

echo "== what people get wrong"
# refused WORDS ARGUMENT...: a non-zero code, and one line on stderr with these words.
refused() {
  local words=$1 code=0
  shift
  "$perf/all_reduce_perf" "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" != 0 ] || fail "taken: $*"
  grep -qF -- "$words" "$work/err" || { cat "$work/err"; fail "does not say '$words': $*"; }
  [ "$(wc -l <"$work/err")" -le 2 ] || { cat "$work/err"; fail "more than a line or two: $*"; }
}
refused "8Q" -b 8Q
refused "--nothing" --nothing
refused "floaty" -d floaty
refused "summ" -o summ
refused "--maxbytes 8 is smaller" -b 64 -e 8
refused "and" -o and -d float
refused "$work/none/s.csv" --csv "$work/none/s.csv"
refused "3 bytes hold no float; the smallest size is 4 bytes" --ranks 2 -b 3 -e 3
refused "7 bytes hold no double" -t 2 -b 1 -e 7 -f 7 -d double
code=0
"$perf/all_gather_perf" --ranks 3 -b 8 -e 8 >"$work/out" 2>&1 || code=$?
[ "$code" = 2 ] || fail "all_gather of no elements: code $code"
[ "$(cat "$work/out")" = "all_gather_perf: 8 bytes hold no float for each of 3 ranks; the smallest size is 12 bytes" ] ||
  { cat "$work/out"; fail "all_gather of no elements"; }
"$perf/all_gather_perf" --ranks 3 -b 4 -e 16 -f 2 -n 2 >"$work/out" || fail "sizes, two of which hold no element"
grep -q '^# left out: 2 sizes without an element for each rank' "$work/out" ||
  { cat "$work/out"; fail "sizes left out"; }
awk '/^ +[0-9]/ { rows++; if ($2 == 0) exit 1 } END { exit rows != 1 }' "$work/out" || fail "a row without elements"
refused "exclude" --ranks 2 -t 2
TMPDIR=/nonexistent refused "no temporary folder" --ranks 2 -b 8 -e 8
WORLD_SIZE=2 refused "RANK" -b 8 -e 8
