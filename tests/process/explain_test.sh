#!/usr/bin/env bash
# tutti explain as its users see it: text that fits, JSON and pictures that others read, plans, and
# one line for what is wrong.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; exit 1; }

echo "== text, pictures and plans"
while read -r arguments; do
  # shellcheck disable=SC2086
  "$tutti" explain $arguments --svg "$work/plan.svg" >"$work/text" || fail "$arguments"
  awk 'length($0) > 100 { print; exit 1 }' "$work/text" || fail "$arguments: wider than 100 columns"
  for word in 'Chosen: ' 'Spent on: ' 'Bound' 'To be faster: ' ' 1 .* chosen'; do
    grep -qE "^$word" "$work/text" || { cat "$work/text"; fail "$arguments: no '$word'"; }
  done
  # shellcheck disable=SC2086
  "$tutti" explain $arguments --json >"$work/explained.json" || fail "$arguments --json"
  # shellcheck disable=SC2086
  "$tutti" simulate ${arguments} --json >"$work/simulated.json" || fail "simulate $arguments"
  python3 - "$work" <<'PYTHON'
import json, sys, xml.dom.minidom
work = sys.argv[1]
explained = json.load(open(work + "/explained.json"))
row = json.load(open(work + "/simulated.json"))["rows"][0]
best = min(row["algorithms"], key=lambda sample: sample["us"])
first = explained["candidates"][0]
assert not first["refused"] and abs(first["us"] - best["us"]) < 1e-9, (first, best)
assert explained["chosen"] == first["algorithm"]
assert explained["bytes"] == row["bytes"] and explained["ranks"] == row["ranks"]
assert all(c["why"] for c in explained["candidates"][1:])
boxes = xml.dom.minidom.parse(work + "/plan.svg").getElementsByTagName("rect")
assert len(boxes) > explained["ranks"], len(boxes)
PYTHON
done <<'RIGHT'
all_reduce --model hgx-h100 --bytes 64M --type bf16
all_reduce --model hgx-h100:2 --bytes 64K --contract relaxed
all_gather --model dgx1-v100 --bytes 1M
broadcast --model pcie-8 --root 3 --bytes 8
all_to_all --model mi300x --bytes 1G
reduce --model cpu-2s:2 --bytes 5000
RIGHT

echo "== ranks on this machine"
export TUTTI_TUNING=off
for arguments in "all_gather --ranks 4 --bytes 1M" "all_reduce --ranks 3 --bytes 4M --mapped" \
    "broadcast --bytes 8"; do
  # shellcheck disable=SC2086
  "$tutti" explain $arguments >"$work/text" || fail "$arguments"
  awk 'length($0) > 100 { print; exit 1 }' "$work/text" || fail "$arguments: wider than 100 columns"
  grep -q '^Taken: ' "$work/text" || fail "$arguments: nothing is taken"
  # shellcheck disable=SC2086
  "$tutti" explain $arguments --json | python3 -c '
import json, sys
all = json.load(sys.stdin)
assert all["candidates"][0]["algorithm"] == all["chosen"] and all["bound_us"] > 0, all'
done
# A bound that two decimals can't show is not shown as 0.
for arguments in "all_reduce --ranks 2 --bytes 8" "all_reduce --model hgx-h100 --bytes 8"; do
  # shellcheck disable=SC2086
  "$tutti" explain $arguments >"$work/text" || fail "$arguments"
  grep -q '^Bound.*: - (less than 0.01 us)' "$work/text" || { cat "$work/text"; fail "$arguments: no bound of -"; }
  ! grep -qE '^Bound.* 0\.00 us| 0\.0 %|  0\.0  ' "$work/text" || { cat "$work/text"; fail "$arguments: a bound of 0"; }
done
"$tutti" explain all_gather --ranks 4 --bytes 1M --svg "$work/host.svg" --plan >"$work/text"
python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$work/host.svg"
TUTTI_ALGORITHM=^direct "$tutti" explain all_gather --ranks 4 --bytes 1M | grep 'is forbidden' >/dev/null ||
  fail "a forbidden algorithm"

echo "== of one rank's plan, and of all"
"$tutti" explain all_reduce --model pcie-4 --plan >"$work/all"
"$tutti" explain all_reduce --model pcie-4 --rank 2 >"$work/one"
[ "$(wc -l <"$work/one")" -lt "$(wc -l <"$work/all")" ] || fail "one rank's plan is as long as all"
grep -q 'rank 2' "$work/one" || { cat "$work/one"; fail "--rank 2"; }
"$tutti" topo export --model pcie-4 -o "$work/machine.topo"
diff <("$tutti" explain all_reduce --from "$work/machine.topo" | tail -n +2) \
  <("$tutti" explain all_reduce --model pcie-4 | tail -n +2) || fail "a file is not like its model"
"$tutti" explain all_reduce --model hgx-h100 --ranks 16 --bytes 1M | grep '16 ranks' >/dev/null || fail "growth"
"$tutti" explain --help | grep 'Examples:' >/dev/null || fail "no examples in --help"

echo "== what is wrong is one line"
while read -r arguments; do
  code=0
  # shellcheck disable=SC2086
  "$tutti" explain $arguments >"$work/out" 2>"$work/err" || code=$?
  [ "$code" = 2 ] || { cat "$work/err"; fail "$arguments: exit code $code"; }
  [ "$(wc -l <"$work/err")" = 1 ] || { cat "$work/err"; fail "$arguments: not one line"; }
done <<'WRONG'
all_to_some --model hgx-h100
all_reduce --model hgx-h101
all_reduce --model hgx-h100 --algorithm circle
all_reduce --model hgx-h100 --protocol morse
all_reduce --model hgx-h100 --protocol host
all_reduce --model hgx-h100 --bytes 8:64
all_reduce --model hgx-h100 --bytes 8Q
all_reduce --model hgx-h100 --ranks 4:8
all_reduce --model hgx-h100 --ranks 1
all_reduce --model hgx-h100:1 --ranks 16
all_reduce --model hgx-h100 --type float31
all_reduce --model hgx-h100 --contract loose
all_reduce --model hgx-h100 --algorithm ring
all_reduce --model hgx-h100 --rank 8
broadcast --model hgx-h100 --root 8
all_reduce --model hgx-h100 --from x
all_reduce --model hgx-h100 --mapped
all_reduce --ranks 100000
broadcast --ranks 4 --root 4
all_reduce --ranks 4 --algorithm ring
all_reduce --ranks 4 --bytes 1M --rank 4
WRONG
"$tutti" explain all_reduce --from /no/such/file >"$work/out" 2>"$work/err" && fail "no file"
[ "$(wc -l <"$work/err")" = 1 ] || { cat "$work/err"; fail "no file: not one line"; }
echo ok
