#!/usr/bin/env bash
# simt/canary_test.sh PROGRAM plain|tsan: right code is silent, whatever the seed, and every mistake
# that can be planted in the kernels is noticed: one barrier, wait, release, acquire or flag left out.
# Each of the program's cases has to notice what can be left out of its own kernels, as several of
# them have functions in common. Without the thread sanitizer memory order is not looked at, which
# x86 keeps, and barriers have to be noticed by one case alone: it is a matter of luck. Data in packed
# slots are atomics, so the sanitizer sees no order between them.
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

missed=0 looked=0
# notice MISTAKE CASE...: by any of the cases.
notice() {
  local mistake=$1 seed
  shift
  looked=$((looked + 1))
  for seed in "${seeds[@]}"; do
    SIMT_MISTAKE=$mistake SIMT_SEED=$seed "$program" "$@" >"$log" 2>&1 && continue
    echo "$mistake: seed $seed: $(grep -m 1 -E 'WARNING: Thread|differs?|waited|simt:' "$log" || tail -n 1 "$log")"
    return
  done
  echo "$mistake: NOT NOTICED by $* with seeds ${seeds[*]}"
  missed=$((missed + 1))
}

declare -A cases_with # Barriers of the plain build.
mapfile -t cases < <("$program" cases)
for case in "${cases[@]}"; do
  mapfile -t mistakes < <(SIMT_MISTAKE=list "$program" list "$case" | sort -u)
  if [ "${#mistakes[@]}" = 0 ]; then
    echo "$case: no mistake can be planted"
    exit 1
  fi
  for mistake in "${mistakes[@]}"; do
    case $kind:$case:$mistake in
      plain:*:no_acquire@* | plain:*:no_release@* | *:*_packed:no_acquire@* | *:*_packed:no_release@*) ;;
      plain:*:no_barrier@*) cases_with[$mistake]+=" $case" ;;
      *) notice "$mistake" "$case" ;;
    esac
  done
done
for mistake in "${!cases_with[@]}"; do
  read -ra any <<<"${cases_with[$mistake]}"
  notice "$mistake" "${any[@]}"
done
# Lines move: a mistake that no kernel comes to is not passed over in silence.
SIMT_MISTAKE=no_barrier@interpret.h:1 "$program" "${cases[0]}" >"$log" 2>&1 || true
if ! grep -q 'was not planted' "$log"; then
  echo "a mistake at a line that has none: nothing is said"
  exit 1
fi
if [ "$looked" -lt 40 ]; then
  echo "only $looked mistakes can be planted"
  exit 1
fi
echo "$((looked - missed)) of $looked planted mistakes noticed"
[ "$missed" = 0 ]
