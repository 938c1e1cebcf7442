#!/usr/bin/env bash
# perf/guidelines as scripts/perf-host uses it: its verdicts on made-up times, what it measures, its
# errors. Asserts nothing of what was measured.
set -euo pipefail
guidelines=$TEST_SOURCE_DIR/perf/guidelines
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT

fail() { echo "FAILED: $*"; exit 1; }

echo "== verdicts on made-up times"
cat >"$work/verdicts.py" <<'PY'
import json, subprocess, sys
guidelines, work = sys.argv[1:]
SIZES = ["8", "4096", "65536"]

def figures():
    """Three rounds in which all guidelines hold; the rounds differ in speed, as a machine does."""
    base = {"all_reduce": 1.0, "reduce_scatter": 0.8, "all_gather": 0.9, "broadcast": 0.7,
            "reduce": 0.8, "gather": 0.6, "scatter": 0.5, "all_to_all": 1.0,
            "all_reduce by reduce+broadcast": 1.5, "all_reduce by reduce_scatter+all_gather": 1.7,
            "all_gather by gather+broadcast": 1.3, "broadcast by scatter+all_gather": 1.4,
            "all_reduce=ring": 1.3, "all_reduce=two_shot": 1.0, "broadcast=direct": 0.7}
    rounds = []
    for speed in (1.0, 3.0, 0.4):
        times = {name: {size: us * speed * (1 + int(size) / 1000) for size in SIZES}
                 for name, us in base.items()}
        times["barrier"] = {"0": 1.1 * speed}
        halves = {name: {size: us / 2 for size, us in row.items()} for name, row in times.items()}
        rounds.append({"plain": times, "registered": halves})
    return rounds

def broken(rounds, *arguments):
    """(kind, left, right, bytes) of all that is broken, and all guidelines."""
    with open(f"{work}/made_up.json", "w") as file:
        json.dump([{"ranks": 2, "raw": rounds}], file)
    done = subprocess.run([guidelines, "--replay", f"{work}/made_up.json", "--json",
                           f"{work}/verdict.json", *arguments], capture_output=True, text=True)
    assert done.stderr == "" and all(len(line) <= 100 for line in done.stdout.splitlines()), done
    rows = json.load(open(f"{work}/verdict.json"))[0]["guidelines"]
    found = [(row["kind"], row["left"], row["right"], row["bytes"])
             for row in rows if row["broken"]]
    assert done.returncode == (1 if found else 0), done
    for kind, left, right, size in found:
        assert f"{left} <= {right}" in done.stdout, done.stdout
    return found, rows

def planted(name, size, factor, rounds=(0, 1, 2), buffers="plain"):
    figures_now = figures()
    for index in rounds:
        figures_now[index][buffers][name][size] *= factor
    return figures_now

found, rows = broken(figures())
assert found == [], found
# All that the figures allow, twice: 3 sizes each; of the barrier one; 2 pairs of sizes each.
count = {kind: sum(row["kind"] == kind for row in rows) for kind in {row["kind"] for row in rows}}
assert count == {"composition": 24, "special": 38, "monotone": 32, "registered": 25,
                 "selection": 12}, count

MIDDLE = "4096"
for name, factor, expected in (
        ("all_reduce by reduce+broadcast", 0.5,
         [("composition", "all_reduce", "all_reduce by reduce+broadcast", 4096)]),
        ("broadcast by scatter+all_gather", 0.4,
         [("composition", "broadcast", "broadcast by scatter+all_gather", 4096)]),
        ("reduce_scatter", 1.5, [("special", "reduce_scatter", "all_reduce", 4096)]),
        ("all_reduce=ring", 0.6, [("selection", "all_reduce", "all_reduce=ring", 4096)]),
        ("broadcast=direct", 0.8, [("selection", "broadcast", "broadcast=direct", 4096)]),
        ("scatter", 20, [("special", "scatter", "broadcast", 4096),
                         ("monotone", "scatter", "scatter of 64K", 4096)])):
    found, _ = broken(planted(name, MIDDLE, factor))
    assert sorted(found) == sorted(expected), (name, found)
assert broken(planted("barrier", "0", 1.2))[0] == [("special", "barrier", "all_reduce", 0)]
assert broken(planted("barrier", "0", 1.08))[0] == [], "1.18 of 1.2"
assert broken(planted("all_to_all", MIDDLE, 2.3, buffers="registered"))[0] == [
    ("registered", "all_to_all", "all_to_all of plain buffers", 4096)]

# Noise: less than a tenth too much, or one bad round of three, is no violation.
assert broken(planted("reduce", MIDDLE, 1.3))[0] == [], "4 % more than an all_reduce"
assert broken(planted("reduce", MIDDLE, 1.3), "--noise", "0.01")[0] != []
assert broken(planted("reduce", MIDDLE, 9, rounds=(1,)))[0] == [], "one round"
assert broken(planted("reduce", MIDDLE, 9, rounds=(0, 2)))[0] == [], "faster in one round"
calm = planted("reduce", MIDDLE, 9, rounds=(0, 1))
calm[2]["plain"]["reduce"][MIDDLE] *= 1.3
assert broken(calm)[0] == [], "4 % more in the fastest round"
one_bad = planted("reduce", MIDDLE, 1.3)
one_bad[1]["plain"]["reduce"][MIDDLE] *= 9
assert broken(one_bad)[0] == [], "4 % more in the median"
# Only what was asked for.
assert broken(planted("scatter", MIDDLE, 20), "--only", "special")[0] == [
    ("special", "scatter", "broadcast", 4096)]
# What was not measured is not judged.
assert broken([{"plain": {"reduce": times["plain"]["reduce"]}} for times in figures()])[1] == [
    row for row in rows
    if (row["left"], row["kind"], row["buffers"]) == ("reduce", "monotone", "plain")]
PY
python3 "$work/verdicts.py" "$guidelines" "$work"

echo "== what it measures"
code=0
"$guidelines" --build "$TEST_BUILD_DIR" --ranks 3 --rounds 1 --min-ms 1 --sizes 12,6K \
  --collective all_reduce,all_gather,barrier --buffers plain --json "$work/real.json" \
  >"$work/out" 2>"$work/err" || code=$?
[ "$code" -le 1 ] || { cat "$work/err"; fail "measuring"; }
python3 - "$work" <<'PY'
import json, sys
(report,) = json.load(open(f"{sys.argv[1]}/real.json"))
assert (report["ranks"], len(report["raw"]), set(report["raw"][0])) == (3, 1, {"plain"})
times = report["raw"][0]["plain"]
for name in ("all_reduce", "all_gather", "all_to_all", "all_reduce by reduce+broadcast",
             "all_reduce by reduce_scatter+all_gather", "all_gather by gather+broadcast",
             "all_reduce=two_shot", "all_gather=direct"):
    assert set(times[name]) == {"12", "6144"}, (name, times.get(name))
assert set(times["barrier"]) == {"0"}
# 3 ranks: a ring does not add in canonical order, so it is no candidate.
assert "all_reduce=ring" not in times and "all_gather=ring" in times, sorted(times)
assert "broadcast" not in times and "broadcast by scatter+all_gather" not in times, sorted(times)
kinds = {row["kind"] for row in report["guidelines"]}
assert kinds == {"composition", "special", "monotone", "selection"}, kinds
PY

echo "== what people get wrong"
refused() {
  local words=$1 code=0
  shift
  "$guidelines" "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" != 0 ] || fail "taken: $*"
  grep -qF -- "$words" "$work/err" || { cat "$work/err"; fail "does not say '$words': $*"; }
}
refused "speeding" --only speeding
refused "'2'" --noise 2
refused "no tutti_loop" --build "$work"
refused "what --json wrote" --replay "$work/none.json"
echo '[{"ranks": 2}]' >"$work/half.json"
refused "what --json wrote" --replay "$work/half.json"
loop=$TEST_BUILD_DIR/perf/peers/tutti_loop
code=0
"$loop" --collective scatter --by reduce+broadcast 2>"$work/err" || code=$?
[ "$code" = 2 ] || fail "the loop takes any detour"
