#!/usr/bin/env bash
# tutti simulate as its users see it: tables that fit, files that others read, and one line for what
# is wrong.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; exit 1; }

echo "== tables"
for arguments in "all_reduce --model hgx-h100:2" "all_gather --model dgx1-v100 --ranks 2:8" \
    "broadcast --model pcie-8 --root 3" "reduce_scatter --model cpu-2s:4" \
    "all_reduce --model dgx-a100 --algorithm ring,two_shot --bytes 8:16G:4 --contract relaxed"; do
  # shellcheck disable=SC2086
  "$tutti" simulate $arguments >"$work/table" || fail "$arguments"
  awk 'length($0) > 100 { print; exit 1 }' "$work/table" || fail "$arguments: wider than 100 columns"
  [ "$(wc -l <"$work/table")" -gt 5 ] || fail "$arguments: no rows"
done

echo "== files"
"$tutti" simulate all_reduce --model hgx-h100 --contract relaxed --bytes 1K:1G --json \
  --csv "$work/curve.csv" --svg "$work/curve.svg" >"$work/curve.json"
python3 - "$work" <<'PYTHON'
import csv, json, sys, xml.dom.minidom
work = sys.argv[1]
rows = json.load(open(work + "/curve.json"))["rows"]
table = list(csv.DictReader(open(work + "/curve.csv")))
assert len(rows) == 11, len(rows)
for row in rows:
    for sample in row["algorithms"]:
        assert sample["us"] >= row["bound_us"], (row, sample)
        same = [t for t in table if int(t["bytes"]) == row["bytes"] and t["algorithm"] == sample["algorithm"]]
        assert len(same) == 1 and abs(float(same[0]["us"]) - sample["us"]) < 1e-3, (same, sample)
best = min(rows[-1]["algorithms"], key=lambda sample: sample["us"])
assert best["algorithm"] == rows[-1]["best"], best
xml.dom.minidom.parse(work + "/curve.svg")
PYTHON

echo "== rows come as they are known: also before what can't be done"
"$tutti" topo export --model pcie-4:2 -o "$work/eight.topo"
code=0
"$tutti" simulate all_gather --from "$work/eight.topo" --ranks 2,4,64 --bytes 1M >"$work/rows" 2>"$work/err" || code=$?
[ $code = 2 ] || fail "64 of 8 ranks: $code"
grep -q 'the machine has 8' "$work/err" || { cat "$work/err"; fail "64 of 8 ranks: the reason"; }
[ "$(grep -cE '^ +[24] +1M ' "$work/rows")" = 2 ] || { cat "$work/rows"; fail "no rows before the error"; }

echo "== a model and a file of one host grow with the ranks"
"$tutti" simulate all_reduce --model hgx-h100 --ranks 16 --bytes 1M | grep '16 ranks' >/dev/null || fail "growth"
"$tutti" topo export --model pcie-4 -o "$work/machine.topo"
"$tutti" simulate all_reduce --from "$work/machine.topo" --bytes 1M --json >"$work/a"
"$tutti" simulate all_reduce --model pcie-4 --bytes 1M --json >"$work/b"
grep -q '"us":' "$work/a" || fail "no times"
diff <(grep '"us":' "$work/a") <(grep '"us":' "$work/b") || fail "a file gives another time than its model"

for ranks in 4 8; do
  for source in "--from $work/machine.topo" "--from $work/machine.topo:2" "--model pcie-4"; do
    # shellcheck disable=SC2086
    "$tutti" simulate all_reduce $source --ranks $ranks --bytes 1M --json | grep '"us":' >"$work/grown"
    [ -f "$work/first$ranks" ] || cp "$work/grown" "$work/first$ranks"
    diff "$work/first$ranks" "$work/grown" || fail "$ranks ranks: $source takes another time"
  done
done
"$tutti" simulate all_reduce --from - --ranks 2,8 --bytes 1M <"$work/machine.topo" |
  grep -E '^ +8 +1M ' >/dev/null || fail "standard input"

"$tutti" topo export --model cpu-2s | "$tutti" simulate all_reduce --from - --bytes 1M |
  grep 'no GPU: ranks on its NUMA nodes' >/dev/null || fail "does not say that there is no GPU"

echo "== a step of training"
# 10^9 parameters of 16 bits on 8 ranks: 2 * 7/8 * 2 GB are sent, 140 ms at 25 GB/s.
"$tutti" step-time --ranks 8 --parameters 1B >"$work/step"
grep -E '^ +8 +1B ddp +16 +3.5 +140 ' "$work/step" >/dev/null || { cat "$work/step"; fail "ddp"; }
grep -E '^ +8 +1B zero3 +[0-9.]+ +5.25 +210 ' "$work/step" >/dev/null || fail "zero3"
grep hierarchical "$work/step" | grep '1B' >/dev/null && fail "one host has no hierarchy"
awk 'length > 100 { print; exit 1 }' "$work/step" || fail "more than 100 columns"
# What computes nothing waits for all of its calls but those that overlap each other.
"$tutti" step-time --ranks 8,16 --parameters 1B --tokens 1e-3 --json | python3 -c '
import json, sys
rows = json.load(sys.stdin)
assert len(rows) == 5, rows
for row in rows:
    assert row["compute_us"] < 1 and abs(row["step_us"] / row["calls_us"] - 1) < 0.01, row' ||
  fail "a step without computing"
for wrong in "--parameters 2B" "--model none" "--ranks 1" "--tflops 0" "--tflops inf" "--rate nan" "--contract loose"; do
  # shellcheck disable=SC2086
  "$tutti" step-time $wrong >"$work/out" 2>"$work/err" && fail "accepted: $wrong"
  [ "$(wc -l <"$work/err")" = 1 ] || { cat "$work/err"; fail "$wrong: not one line"; }
done

echo "== what is wrong is one line"
for command in "simulate all_reduce --model hgx-h100" "explain all_reduce"; do
  # shellcheck disable=SC2086
  "$tutti" $command --ranks 99999999 >"$work/out" 2>"$work/err" && fail "accepted: 99999999 ranks"
  grep -q -- '--ranks: 99999999 is not from 1 to 16384$' "$work/err" || { cat "$work/err"; fail "the limit of ranks"; }
done
while read -r arguments; do
  # shellcheck disable=SC2086
  "$tutti" simulate $arguments >"$work/out" 2>"$work/err" && fail "accepted: $arguments"
  [ "$(wc -l <"$work/err")" = 1 ] || { cat "$work/err"; fail "$arguments: not one line"; }
done <<'WRONG'
all_to_some --model hgx-h100
all_reduce --model hgx-h100 --algorithm circle
all_reduce --model hgx-h100 --protocol morse
all_reduce --model hgx-h100 --bytes 8:4
all_reduce --model hgx-h100 --bytes 8:16G:1
all_reduce --model hgx-h100 --bytes -8
all_reduce --model hgx-h100 --ranks 1
all_reduce --model hgx-h100:1 --ranks 16
all_reduce --model hgx-h100 --ranks 100000
all_reduce --model hgx-h100 --protocol host
all_reduce --model hgx-h100 --type float31
all_reduce --model hgx-h100 --contract loose
broadcast --model hgx-h100 --root 8
all_reduce --from /no/such/file
WRONG
echo ok
