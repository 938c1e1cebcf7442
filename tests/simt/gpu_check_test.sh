#!/usr/bin/env bash
# simt/gpu_check_test.sh BENCH TESTS NCCL FAKE_DRIVER FACTS: scripts/gpu-check without a GPU, and its whole way with programs on
# simulated devices in the place of those for a GPU, and an nvidia-smi that says there is one.
set -euo pipefail
bench=$1 tests=$2 nccl=$3
export GPU_CHECK_NCCL=$4
facts=$5
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
program "$work/bin/python3" '[[ ${2:-} != *find_spec* ]] && exec /usr/bin/python3 "$@"'
# shellcheck disable=SC2016 # Likewise.
program "$work/bin/compute-sanitizer" 'while [ "${1#*cuda_bench}" = "$1" ]; do shift; done; exec "$@"'
program "$work/pack/cuda_bench" "exec '$bench' \"\$@\" \$([ \"\$1\" = --alone ] || echo --bytes 16k --rounds 1 --replays 2)"
program "$work/pack/cuda_facts" "exec '$facts' \"\$@\" --patience 300 --count 8"
program "$work/pack/cuda_nccl" "exec '$nccl' \"\$@\" --bytes 16k --rounds 1 --replays 2"
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
assert [run["name"] for run in result["runs"]] == ["facts", "bench", "tests", "nccl", "processes", "memcheck", "racecheck"], result
assert result["device"] == "a simulated GPU", result
assert all(run["status"] == 0 for run in result["runs"]), result
assert len(result["facts"]["rows"]) > 15, result
assert len(result["bench"]["rows"]) > 37, result
theirs = [row for row in result["nccl"]["rows"] if row["what"].startswith("NCCL's")]
assert len(theirs) == 3 and all(row["microseconds"] > 0 for row in theirs), result
EOF
grep "two-shot all-reduce, 8 ranks, float32" "$work/said" >/dev/null

# Where NCCL can't run, the table says why, and nothing fails.
left_out() {
  local said expected=$1
  shift
  said=$(env "$@" "$nccl" "${library:-$GPU_CHECK_NCCL}" --bytes 16k --rounds 1 --replays 2)
  grep -F "$expected" <<<"$said" >/dev/null && return
  echo "with $*: \"$expected\" is not said: $said"
  exit 1
}
grep "Tutti's two-shot all-reduce, float32, 8 ranks, 8 devices" "$work/said" >/dev/null
left_out "NCCL's all-reduce, float32, 8 ranks, 1 device " SIMT_DEVICES=1
left_out "NCCL 2.29.2 has one rank per device; from 2.30.3 on several can share one" \
  SIMT_DEVICES=1 TUTTI_STAND_IN_NCCL=22902
left_out "ncclCommInitRank: invalid usage (several ranks on a device take NCCL_MULTI_RANK_GPU_ENABLE=1)" \
  SIMT_DEVICES=1 TUTTI_STAND_IN_FAILS=ncclCommInitRank
library=$work/none.so left_out "no NCCL: $work/none.so: cannot open" SIMT_DEVICES=2

# A sanitizer that the machine does not let at the device is no failure of ours.
# shellcheck disable=SC2016 # The program's.
program "$work/pack/cuda_bench" 'echo "{\"rows\": []}" >"$2"'
program "$work/pack/cuda_facts" true
program "$work/pack/cuda_nccl" true
program "$work/pack/cuda_devices_test" true
program "$work/pack/cuda_processes_test" true
program "$work/bin/compute-sanitizer" 'echo "========= Error: Device not supported. Please refer to the documentation"; exit 1'
if ! "$check" >"$work/said" 2>&1 || ! grep -E "^memcheck +LEFT OUT \(device not supported\)" "$work/said" >/dev/null; then
  echo "a sanitizer without a device: $(cat "$work/said")"
  exit 1
fi

# What was known before something failed, could not even be ended, or had no time left, is there.
# shellcheck disable=SC2016 # The program's.
program "$work/pack/cuda_bench" 'echo "a row"; echo "{\"rows\": [1]}" >"$2"; exit 1'
program "$work/pack/cuda_devices_test" 'echo "at it"; trap "" TERM; sleep 600; sleep 600'
if GPU_CHECK_SECONDS=6 "$check" >"$work/said" 2>&1; then
  echo "steps failed, and nobody said so"
  exit 1
fi
for line in "bench +FAILED \(1\)" "a row" "tests +FAILED \(longer than [56] s\)" "at it" "nccl +LEFT OUT"; do
  grep -E "^$line" "$work/said" >/dev/null && continue
  echo "\"$line\" is not said: $(cat "$work/said")"
  exit 1
done
/usr/bin/python3 - "$work/out/result.json" <<'EOF'
import json, sys
result = json.load(open(sys.argv[1]))
assert [run["status"] for run in result["runs"]] == [0, 1, 137, *["left out"] * 4], result
assert result["bench"]["rows"] == [1] and result["nccl"] is None, result
EOF
