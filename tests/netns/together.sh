# shellcheck shell=bash
# Sourced: a rank on each of four hosts, all started at once, and what they print. Wants netns and a
# folder of its own in work, and a function `environment RANK`, whose words a launcher would set.

fail() {
  echo "FAILED: $*" >&2
  cat "$work/out"
  exit 1
}
says() { grep -Eq "$1" "$work/out" || fail "it does not say: $1"; }

# together COMMAND...: the status of a rank that failed, or 0.
together() {
  local rank pids=() status=0
  for rank in 0 1 2 3; do
    # shellcheck disable=SC2046
    env $(environment "$rank") timeout 150 "$netns" exec "$rank" -- "$@" >"$work/out.$rank" 2>&1 &
    pids+=($!)
  done
  for rank in 0 1 2 3; do wait "${pids[rank]}" || status=$?; done
  cat "$work"/out.* >"$work/out"
  return "$status"
}
