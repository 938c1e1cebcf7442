# shellcheck shell=bash
# Sourced: two ranks on two hosts that reduce until one of them can't go on. Wants netns, perf, and a
# folder of its own in work. If set: `rails`, interfaces of each host; `check`, how results are.
pids=()

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Starts them, and returns once they are at it.
start() {
  "$netns" up 2 "${rails:-1}"
  rm -f "$work/0" "$work/1" # What ranks of before have printed.
  for rank in 0 1; do
    TUTTI_RANK=$rank TUTTI_RANK_COUNT=2 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_RANK_COUNT=1 \
      TUTTI_RENDEZVOUS=10.77.0.1:29500 TUTTI_TIMEOUT_MS=6000 timeout 60 "$netns" exec "$rank" -- \
      "$perf/all_reduce_perf" -b 8 -e 1M -f 131072 -n 20 -N 100000 -w 1 ${check:+-c "$check"} \
      >"$work/$rank" 2>&1 &
    pids[rank]=$!
  done
  for ((i = 0; i < 1000; ++i)); do # Rank 0 prints a line for each size.
    grep -Eqs "^ +1048576 " "$work/0" && return
    sleep 0.02
  done
  cat "$work/0" "$work/1"
  fail "the ranks did not start"
}

# kill_rank RANK: as a crash would.
kill_rank() {
  # timeout's child. It may have ended by itself already, because the other one was killed.
  pkill -KILL -P "${pids[$1]}" || true
  wait "${pids[$1]}" 2>/dev/null || true
}

# ended RANK REGEX: the rank ends by itself, with that error.
ended() {
  local status=0
  wait "${pids[$1]}" || status=$?
  [ "$status" != 0 ] || fail "rank $1 has not failed"
  [ "$status" != 124 ] || { cat "$work/$1"; fail "rank $1 hung"; }
  grep -Eq "$2" "$work/$1" || { cat "$work/$1"; fail "rank $1 did not say: $2"; }
}
