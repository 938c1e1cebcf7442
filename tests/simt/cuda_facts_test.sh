#!/usr/bin/env bash
# simt/cuda_facts_test.sh PROBE: the probe of a GPU (perf/cuda_facts.cc) on a simulated one: every fact is there, calls
# that come back and calls that wait for the kernel are told apart, and all of it ends soon.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" --patience 300 --count 20 --json "$work/facts.json" >"$work/said" || {
  cat "$work/said"
  exit 1
}
python3 - "$work/facts.json" <<'EOF'
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
notes = {row["what"]: row.get("note", "") for row in rows}
timed = {row["what"]: row["microseconds"] for row in rows if "microseconds" in row}
for phase in ("launch_us", "load_us", "flag_us", "release_us", "barriers_us", "a step of the interpreter"):
    assert any(what.startswith(phase) and us > 0 for what, us in timed.items()), (phase, rows)
parts = [note for what, note in notes.items() if what.endswith(", seen in part")]
assert len(parts) == 2 and all(note.startswith("0 of ") for note in parts), rows
assert any(what.startswith("cudaMalloc: comes back") for what in timed), rows
# To free memory a driver may wait until the device is idle.
assert notes["cudaMalloc and cudaFree"] == "waits for the kernel", rows
assert not any(note.startswith("refused") for note in notes.values()), rows
EOF
# GPUs on which no communicator takes lines of 128 bytes: here their parts come in any order.
SIMT_MACHINE=pcie-4 SIMT_SEED=3 "$1" --patience 300 --count 400 --json "$work/facts.json" >"$work/said"
python3 - "$work/facts.json" <<'EOF'
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
parts = [row["note"] for row in rows if row["what"].endswith(", seen in part")]
assert len(parts) == 2 and not any(note.startswith("0 of ") for note in parts), rows
EOF
