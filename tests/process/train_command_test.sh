#!/usr/bin/env bash
# tutti train as its users see it: threads and processes give the same bits, and what people get
# wrong is one line and an exit code.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Only what is set here may decide how ranks meet.
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT

fail() { echo "FAILED: $*"; exit 1; }
hash_of() { sed -nE 's/.*"weights_hash": "([0-9a-f]+)".*/\1/p' "$1"; }

echo "== threads and processes give the same bits"
common=(--epochs 2 --target-accuracy 0.5 --seed 3)
"$tutti" train "${common[@]}" --json "$work/one.json" >"$work/one.log"
one=$(hash_of "$work/one.json")
[ "${#one}" = 16 ] || fail "no hash of the weights: '$one'"
"$tutti" train "${common[@]}" --ranks 2 --json "$work/threads.json" >"$work/threads.log"
[ "$(hash_of "$work/threads.json")" = "$one" ] || fail "2 threads differ from 1"
for ranks in 2 4; do
  "$tutti" run -n "$ranks" -- "$tutti" train "${common[@]}" --json "$work/$ranks.json" \
    >"$work/$ranks.log" 2>&1 || { cat "$work/$ranks.log"; fail "$ranks processes"; }
  [ "$(hash_of "$work/$ranks.json")" = "$one" ] || fail "$ranks processes differ from 1"
  [ "$(grep -c 'replicas identical' "$work/$ranks.log")" = 1 ] || fail "not only rank 0 reports"
  grep -q 'came last to [0-9]* % of the calls' "$work/$ranks.log" || fail "no straggler named"
  grep -q '"last_share"' "$work/$ranks.json" || fail "no straggler in the history"
done
"$tutti" train "${common[@]}" --seed 4 --json "$work/other.json" >"$work/other.log" 2>&1 &&
  fail "an option given twice was taken"
"$tutti" train --epochs 2 --target-accuracy 0.5 --seed 4 --json "$work/other.json" >"$work/other.log"
[ "$(hash_of "$work/other.json")" != "$one" ] || fail "the seed does nothing"

echo "== no terminal, no bar"
grep -q "$(printf '\r')" "$work/one.log" && fail "a carriage return in a file"
grep -q 'epoch   2 of 2' "$work/one.log" || fail "no line about the last epoch"

echo "== the picture is well-formed"
"$tutti" train --epochs 3 --target-accuracy 0 --plot "$work/plot.svg" >"$work/plot.log"
python3 -c 'import sys, xml.dom.minidom as x
curves = x.parse(sys.argv[1]).getElementsByTagName("polyline")
assert len(curves) == 2 and all(len(c.getAttribute("points").split()) == 3 for c in curves)' \
  "$work/plot.svg"

echo "== strategies and numbers of ranks side by side"
"$tutti" train --compare ddp,zero3,local --ranks 2 --epochs 2 --slices 2 --plot "$work/compare.svg" >"$work/out"
[ "$(grep -cE '^(ddp|zero3|local) ' "$work/out")" = 3 ] || { cat "$work/out"; fail "not 3 strategies"; }
[ "$(grep -c '<polyline' "$work/compare.svg")" = 3 ] || fail "not 3 curves"
"$tutti" train --scaling 1,2 --epochs 1 --slices 2 --plot "$work/scaling.svg" --json "$work/scaling.json" >"$work/out"
[ "$(grep -cE '^(1 rank|2 ranks) .* %$' "$work/out")" = 4 ] || { cat "$work/out"; fail "not 4 runs"; }
python3 - "$work" <<'PYTHON'
import json, sys, xml.dom.minidom
curves = xml.dom.minidom.parse(sys.argv[1] + "/scaling.svg").getElementsByTagName("polyline")
assert len(curves) == 4, len(curves)  # Strong and weak, and what ranks would do that exchange nothing.
assert all(len(curve.getAttribute("points").split()) == 2 for curve in curves)
scaling = json.load(open(sys.argv[1] + "/scaling.json"))
assert list(scaling) == ["strong", "weak"], scaling
for kind, runs in scaling.items():
    one, two = runs
    assert one["ranks"] == 1 and two["ranks"] == 2, runs
    assert one["apart_samples_per_second"] == one["samples_per_second"] > 0, one
    assert two["apart_samples_per_second"] > 0, two
    for run in runs:
        assert run["compute_s"] + run["exposed_s"] <= run["step_s"] * 1.001, run
    # In strong scaling both have the same batches, so the same weights; in weak scaling not.
    assert (one["accuracy"] == two["accuracy"]) == (kind == "strong"), (kind, runs)
PYTHON

echo "== a slow rank is the straggler"
"$tutti" train --ranks 3 --epochs 2 --target-accuracy 0 --slow-rank 2:20ms >"$work/out"
grep -q '^rank 2 came last' "$work/out" || { cat "$work/out"; fail "another straggler"; }

echo "== a missed target"
code=0
"$tutti" train --epochs 1 --target-accuracy 1 >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 1 ] || fail "exit code $code"
grep -q 'target accuracy was not reached' "$work/err" || fail "does not say so"

echo "== what people get wrong"
# refused CODE WORDS ARGUMENT...: this code, and one line on stderr with these words.
refused() {
  local code=0 want=$1 words=$2
  shift 2
  "$tutti" train "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" = "$want" ] || fail "exit code $code of: $*"
  [ "$(wc -l <"$work/err")" = 1 ] || { cat "$work/err"; fail "not one line: $*"; }
  grep -qF -- "$words" "$work/err" || { cat "$work/err"; fail "does not say '$words': $*"; }
}
refused 2 "$work/nothing.csv: No such file or directory" --data "$work/nothing.csv"
head -c 5000 "$TEST_SOURCE_DIR/trainer/data/digits.csv" >"$work/short.csv"
refused 2 "$work/short.csv:" --data "$work/short.csv"
refused 2 --ranks --ranks 0
refused 2 --learning-rate --learning-rate nan
refused 2 --target-accuracy --target-accuracy 97
refused 2 --epochs --epochs -1
refused 2 --bucket-bytes --bucket-bytes 0
refused 2 --strategy --strategy none
refused 2 "unknown value 'none'; there are ddp" --compare none
refused 2 "write rank and milliseconds" --slow-rank 1
refused 2 "needs 2 ranks" --strategy ps
refused 2 "of 2 ranks at most 1 can be servers" --ranks 2 --strategy ps --servers 2
refused 2 "of 3 ranks at most 2 can be servers" --ranks 3 --strategy dcasgd --servers 9
refused 2 "of 2 ranks at most 1 can be servers" --compare ddp,async_ps --servers 2
refused 2 "there are ranks 0 to 1" --ranks 2 --slow-rank 2:1ms
refused 2 "there is rank 0 alone" --slow-rank 1:1ms
refused 2 "there is rank 0 alone" --scaling 2,1 --slow-rank 1:1ms
[ ! -s "$work/out" ] || fail "trained on 2 ranks before it refused 1"
refused 2 ".: Is a directory" --data .
refused 2 ".: Is a directory" --model transformer --data .
refused 2 "with strategy fsdp" --precision bf16
refused 2 "find_unused only" --drop-units 0.5
refused 2 "$work/none/plot.svg" --epochs 1 --target-accuracy 0 --plot "$work/none/plot.svg"
code=0
"$tutti" run -n 2 -- "$tutti" train --ranks 2 >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 2 ] || fail "--ranks under a launcher: exit code $code"
grep -q 'leave --ranks out' "$work/err" || fail "--ranks under a launcher: no remedy"
