#!/usr/bin/env bash
# Simulated devices on several hosts: two ranks on each of two, which reach each other's memory there;
# and one on each of three.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
rank=$TEST_BUILD_DIR/tests/simt/simt_hosts_rank
export TUTTI_NETNS=tuttitest$$ TUTTI_TIMEOUT_MS=20000

reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
[ -x "$rank" ] || { echo "skipped: $rank was not built, as there are no CUDA headers"; exit 77; }
seed=$RANDOM
for form in "2 2" "3 1"; do
  # shellcheck disable=SC2086 # Two numbers.
  said=$("$netns" run $form -- "$rank" "$seed") || { echo "$form: $said" >&2; exit 1; }
  grep "to rank 2: network" <<<"$said" >/dev/null || { echo "$form: no network: $said" >&2; exit 1; }
  if [ "$form" = "2 2" ]; then
    grep "to rank 1: NVLink" <<<"$said" >/dev/null || { echo "$form: no peers: $said" >&2; exit 1; }
  fi
done
