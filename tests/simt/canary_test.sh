#!/usr/bin/env bash
# simt/canary_test.sh PROGRAM plain|tsan: right code is silent, whatever the seed, and every mistake
# that can be planted in the kernels is noticed: one barrier, wait, release, acquire or flag left out.
# Without the thread sanitizer memory order is not looked at: x86 keeps it.
set -euo pipefail
program=$1 kind=$2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export SIMT_TIMEOUT=20
seeds=({0..31}) # A barrier may be missed by chance: the next seed is tried until one notices.

for seed in "${seeds[@]:0:4}"; do
  SIMT_SEED=$seed "$program" >"$log" 2>&1 || {
    echo "seed $seed: right code was complained of:"
    head -n 40 "$log"
    exit 1
  }
done

mapfile -t mistakes < <(SIMT_MISTAKE=list "$program" list | sort -u)
if [ "${#mistakes[@]}" -lt 12 ]; then
  echo "only ${#mistakes[@]} mistakes can be planted: ${mistakes[*]}"
  exit 1
fi
missed=0 looked=0
for mistake in "${mistakes[@]}"; do
  case $kind:$mistake in plain:no_acquire@* | plain:no_release@*) continue ;; esac
  looked=$((looked + 1))
  found=
  for seed in "${seeds[@]}"; do
    if ! SIMT_MISTAKE=$mistake SIMT_SEED=$seed "$program" >"$log" 2>&1; then
      found=$seed
      break
    fi
  done
  if [ -n "$found" ]; then
    echo "$mistake: seed $found: $(grep -m 1 -E 'WARNING: Thread|differs|waited|simt:' "$log" || tail -n 1 "$log")"
  else
    echo "$mistake: NOT NOTICED with seeds ${seeds[*]}"
    missed=$((missed + 1))
  fi
done
echo "$((looked - missed)) of $looked planted mistakes noticed"
[ "$missed" = 0 ]
