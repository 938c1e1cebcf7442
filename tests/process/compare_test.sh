#!/usr/bin/env bash
# perf/compare as scripts/perf-host uses it: every collective and one-sided call, its tables, files and
# errors, so that it can't rot between two measurements. Asserts no times.
set -euo pipefail
compare=$TEST_SOURCE_DIR/perf/compare
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT

fail() { echo "FAILED: $*"; exit 1; }
quick=(--build "$TEST_BUILD_DIR" --rounds 1 --min-ms 1)

echo "== every collective and one-sided call, ours and all peers that are installed"
# Gloo and MPICH take milliseconds a call where ranks outnumber cores: only Open MPI for 3 ranks.
for run in "2 all" "3 openmpi"; do
  read -r ranks peers <<<"$run"
  "$compare" "${quick[@]}" --collective all --ranks "$ranks" --sizes 8,12,64K --peers "$peers" \
    --json "$work/$ranks.json" --plot "$work/$ranks.svg" >"$work/out" 2>"$work/err" ||
    { cat "$work/err"; fail "compare"; }
  cat "$work/err" # Which peers are not installed.
  awk 'length($0) > 100 { exit 1 }' "$work/out" || fail "lines of more than 100 columns"
done
python3 - "$work" "$TEST_SOURCE_DIR" <<'PY'
import json, re, sys, xml.dom.minidom
from pathlib import Path
work, source = sys.argv[1:]
runs = {(run["collective"], run["ranks"]): run for n in "23"
        for run in json.load(open(f"{work}/{n}.json"))}
names = re.findall(r'^TUTTI_COLLECTIVE\(\w+, "(\w+)"', Path(source, "include/tutti/collectives.def").read_text(), re.M)
assert len(names) >= 8, names
one_sided = ("put", "get", "put_signal")
for collective in (*names, "barrier", *one_sided):
    for ranks in (2, 3):
        run = runs[collective, ranks]
        one_block = collective in ("all_reduce", "broadcast", "reduce", "scan", "exclusive_scan", *one_sided)
        sizes = [0] if collective == "barrier" else [8, 12, 65536] if ranks == 2 or one_block else [12, 65536]
        assert [row["bytes"] for row in run["rows"]] == sizes, (collective, ranks, run["rows"])
        # A window has one kind of memory. Every MPI that takes part has one-sided calls.
        ours = {"registered"} if collective in one_sided else {"registered", "plain"}
        mpis = {"openmpi", "mpich", "openmpi5", "mpich5", "impi"} & set(runs["barrier", ranks]["rows"][0]["times"])
        for row in run["rows"]:
            times = set(row["times"])
            assert times & {"registered", "plain"} == ours and mpis <= times, row
            assert collective not in one_sided or times == ours | mpis, row
            for mine, ratios in row["ratios"].items():
                for peer in set(ratios) - {"best"}:
                    exact = row["times"][peer]["us"] / row["times"][mine]["us"]
                    assert abs(ratios[peer] / exact - 1) < 1e-9, row
        xml.dom.minidom.parse(f"{work}/{ranks}-{collective}-{ranks}.svg")
assert len(runs) == 2 * (len(names) + 1 + len(one_sided)), sorted(runs)
PY

echo "== all peers there are: tables of at most 100 columns with the times of each"
python3 - "$compare" <<'PY'
import contextlib, importlib.machinery, importlib.util, io, sys, types
loader = importlib.machinery.SourceFileLoader("compare", sys.argv[1])
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
sys.dont_write_bytecode = True
loader.exec_module(compare)
names = (*compare.OURS, *compare.PEERS)
assert len(names) >= 10, names
rounds = [{name: {8: 1000.0 + at, 1 << 20: 123456.0 + at} for at, name in enumerate(names)}] * 2
run = compare.summarise(2, "all_reduce", rounds,
                        types.SimpleNamespace(buffers=compare.OURS, min_ms=1))
with contextlib.redirect_stdout(io.StringIO()) as out:
    compare.print_table(run)
    compare.print_summary([run])
printed = out.getvalue()
assert max(map(len, printed.splitlines())) <= 100, printed
for at in range(len(names)):
    assert f" {1000 + at} " in printed.replace("\n", " \n"), (names[at], printed)
PY

echo "== ours against another build of ours"
"$compare" "${quick[@]}" --before "$TEST_BUILD_DIR" --buffers plain --peers none --sizes 8 \
  --json "$work/before.json" >"$work/out" || fail "compare --before"
grep -E '^plain: before / now, mean of each round: [0-9.]+ to ' "$work/out" >/dev/null ||
  { cat "$work/out"; fail "no means of before"; }

echo "== scripts/perf-host, a part of it: what it measured, and its verdict"
if [ -x "$TEST_BUILD_DIR/perf/peers/openmpi_loop" ] && command -v mpirun.openmpi >/dev/null; then
  code=0
  "$TEST_SOURCE_DIR/scripts/perf-host" --build "$TEST_BUILD_DIR" --only peers --ranks 2 \
    --collective barrier --rounds 1 --min-ms 1 >"$work/out" 2>"$work/err" || code=$?
  [ "$code" -le 1 ] || { cat "$work/out" "$work/err"; fail "perf-host: exit $code"; }
  grep '^barrier, 2 ranks' "$work/out" >/dev/null || fail "perf-host measured no barrier"
  verdict=$(grep -E '^[0-9]+ of [0-9]+ hold\.' "$work/out") || fail "perf-host gave no verdict"
  # One line of Missed: or none, as the code says.
  if [ "$code" = 0 ]; then [ "${verdict##*hold.}" = "" ]; else [ "${verdict##*hold.}" = " Missed:" ]; fi ||
    fail "exit $code, but: $verdict"
fi

echo "== what people get wrong"
# refused WORDS ARGUMENT...: a non-zero code, and on stderr these words.
refused() {
  local words=$1 code=0
  shift
  "$compare" "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" != 0 ] || fail "taken: $*"
  grep -qF -- "$words" "$work/err" || { cat "$work/err"; fail "does not say '$words': $*"; }
}
refused "$work/none/x.json: no file can be written" --json "$work/none/x.json" --peers none
refused "gathering" --collective gathering
refused "9" --sizes 9
refused "lam" --peers lam
refused "no tutti_loop" --build "$work"
refused "no tutti_loop in $work" "${quick[@]}" --before "$work" --buffers plain
refused "--buffers" "${quick[@]}" --before "$TEST_BUILD_DIR"
refused "printed no times" "${quick[@]}" --ranks 3 --sizes 8 --collective gather --peers copy_floor
loop=$TEST_BUILD_DIR/perf/peers/tutti_loop
code=0
"$loop" --collective gathering 2>"$work/err" || code=$?
[ "$code" = 2 ] || fail "the loop takes any collective"
