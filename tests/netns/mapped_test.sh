#!/usr/bin/env bash
# Ranks of one host read and write each other's mapped memory, though others are elsewhere:
# every algorithm, several hosts of one, two and three ranks, tiles of several lengths, bit for bit.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
rank=$TEST_BUILD_DIR/tests/netns_hosts_rank
export TUTTI_NETNS=tuttimapped$$ TUTTI_TIMEOUT_MS=20000

reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }
seed=$RANDOM
# form HOSTS RANKS, then settings
form() {
  local hosts="$1 $2"
  shift 2
  # shellcheck disable=SC2086 # Two numbers.
  said=$(timeout 300 env "$@" "$netns" run $hosts -- "$rank" "$seed") || fail "$hosts $*: $said"
  grep "hosts: ${hosts% *};" <<<"$said" >/dev/null || fail "$hosts $*: not between hosts: $said"
  ! grep "^seed" <<<"$said" || fail "$hosts $*"
}
# has WORDS; hasnt WORDS: in what the last form said of its plans
has() { grep -F -e "$1" <<<"$said" >/dev/null || fail "no plan $1: $said"; }
hasnt() { ! grep -F -e "$1" <<<"$said" >/dev/null || fail "a plan $1: $said"; }

form 2 2
has "hierarchical+lanes2+direct, 4 ranks"
form 2 3 TUTTI_SLOT_BYTES=5000 TUTTI_LANES=1
has "hierarchical+direct, 6 ranks"
form 3 2 TUTTI_SLOT_BYTES=40000 TUTTI_SLOT_COUNT=1
# A plan that touches all ranks' buffers is one for ranks that share memory.
plan=$(mktemp)
trap 'rm -f "$plan"' EXIT
"$TEST_BUILD_DIR/tools/tutti" plan all_reduce --ranks 4 --algorithm two_shot --direct >"$plan"
form 2 2 TUTTI_PLAN="$plan" TUTTI_SLOT_BYTES=20000
if "$TEST_BUILD_DIR/tools/tutti" info | grep "^  .*, ucx" >/dev/null; then
  form 2 2 TUTTI_TRANSPORT=ucx UCX_TLS=tcp TUTTI_SLOT_BYTES=70000
fi
form 4 1
hasnt "+direct, 4 ranks"
echo "ok"
