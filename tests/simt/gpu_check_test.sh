#!/usr/bin/env bash
# simt/gpu_check_test.sh BENCH TESTS: scripts/gpu-check without a GPU, and its whole way with programs on
# simulated devices in the place of those for a GPU, and an nvidia-smi that says there is one.
set -euo pipefail
bench=$1 tests=$2
check=$(cd "$(dirname "$0")/../.." && pwd)/scripts/gpu-check
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/pack"
export PATH=$work/bin:$PATH GPU_CHECK_OUT=$work/out GPU_CHECK_PACK=$work/pack SIMT_MULTIPROCESSORS=8

program() {
  printf '#!/usr/bin/env bash\n%s\n' "$2" >"$1"
  chmod +x "$1"
}

program "$work/bin/nvidia-smi" 'exit 9'
status=0
said=$("$check" 2>&1) || status=$?
expected="scripts/gpu-check: no GPU here (nvidia-smi -L lists none); --dry-run builds what would run"
if [ "$status" != 77 ] || [ "$said" != "$expected" ]; then
  echo "without a GPU: status $status: $said"
  exit 1
fi

program "$work/bin/nvidia-smi" 'echo "a simulated GPU"'
# shellcheck disable=SC2016 # It is for the program to expand.
program "$work/bin/python3" '[ "${2:-}" != "import torch" ] && exec /usr/bin/python3 "$@"'
# shellcheck disable=SC2016 # Likewise.
program "$work/bin/compute-sanitizer" 'while [ "${1#*cuda_bench}" = "$1" ]; do shift; done; exec "$@"'
program "$work/pack/cuda_bench" "exec '$bench' \"\$@\" \$([ \"\$1\" = --alone ] || echo --bytes 16k --rounds 1 --replays 2)"
program "$work/pack/cuda_devices_test" "exec '$tests' 'what*'"
program "$work/pack/cuda_processes_test" "exec '$tests' 'what*'"
echo other >"$work/pack/digest"
if said=$("$check" 2>&1) || [[ $said != *"made of other sources"* ]]; then
  echo "a pack of other sources: $said"
  exit 1
fi
"$check" --digest >"$work/pack/digest"
"$check" >"$work/said" 2>&1 || {
  cat "$work/said"
  exit 1
}
/usr/bin/python3 - "$work/out/result.json" <<'EOF'
import json, sys
result = json.load(open(sys.argv[1]))
assert [run["name"] for run in result["runs"]] == ["tests", "processes", "memcheck", "racecheck", "bench"], result
assert all(run["status"] == 0 for run in result["runs"]), result
assert len(result["bench"]["rows"]) > 20, result
EOF
grep "two-shot all-reduce, 8 ranks, float32" "$work/said" >/dev/null
program "$work/pack/cuda_devices_test" 'exit 3'
if "$check" >"$work/said" 2>&1; then
  echo "tests failed, and nobody said so"
  exit 1
fi
grep -E "^tests +FAILED \(3\)" "$work/said" >/dev/null
