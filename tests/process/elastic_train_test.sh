#!/usr/bin/env bash
# tutti train --elastic: whichever rank is killed, and when, the others go on with the same weights, and
# new ranks come in.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT
export TUTTI_TIMEOUT_MS=60000

fail() { cat "$work"/*.log >&2; echo "FAILED: $*"; exit 1; }
# eventually CONDITION...: until it holds; the limit only ends what hangs.
eventually() {
  for _ in $(seq 3000); do "$@" && return; sleep 0.02; done
  fail "never: $*"
}
trains() { [ "$(grep -c "epoch" "$1" || true)" -ge "$2" ]; }
ranks_of() { pgrep -P "$1" || true; }
has_ranks() { [ "$(ranks_of "$1" | wc -l)" = "$2" ]; }
# start NAME EPOCHS RANKS: a training in the background; its folder is $work/NAME, and $job its launcher.
start() {
  mkdir "$work/$1"
  "$tutti" run --elastic -n "$3" --no-prefix -- "$tutti" train --elastic "$work/$1" --epochs "$2" \
    --target-accuracy 0.8 >"$work/$1.log" 2>&1 &
  job=$!
}
# same NAME RANKS: that many ranks ended, all with the same weights.
same() {
  [ "$(grep -c '^weights' "$work/$1.log")" = "$2" ] || fail "not $2 ranks ended: $1"
  [ "$(sed -nE 's/^weights ([0-9a-f]{16}) on rank.*/\1/p' "$work/$1.log" | sort -u | wc -l)" = 1 ] ||
    fail "weights differ: $1"
  grep -q "of $2\$" "$work/$1.log" || fail "not of $2 ranks: $1"
}

for transport in shared_memory tcp; do
  export TUTTI_TRANSPORT=$transport
  for victim in 0 1 2; do
    name=$transport.$victim
    echo "== rank $victim is killed, over $transport"
    start "$name" 100 3
    eventually trains "$work/$name.log" 1
    eventually has_ranks "$job" 3
    sleep "0.0$((RANDOM % 10))"
    kill -9 "$(ranks_of "$job" | sed -n "$((victim + 1))p")"
    wait "$job" || fail "exit code $? without rank $victim"
    grep -q "was killed by signal 9.*the others go on" "$work/$name.log" || fail "nobody says so"
    same "$name" 2
  done
done

unset TUTTI_TRANSPORT
echo "== the slow rank is named, of the ranks that are left"
mkdir "$work/slow"
"$tutti" run --elastic -n 3 --no-prefix -- "$tutti" train --elastic "$work/slow" --epochs 20 \
  --slow-rank 1:5ms --target-accuracy 0.1 >"$work/slow.log" 2>&1 &
job=$!
eventually trains "$work/slow.log" 1
kill -9 "$(ranks_of "$job" | sed -n 1p)"
wait "$job" || fail "exit code $? with a slow rank"
grep -q "^rank [01] came last to" "$work/slow.log" || fail "no slow rank is named"

echo "== two are killed, a new one joins, and one more is killed"
start both 300 4
eventually trains "$work/both.log" 1
eventually has_ranks "$job" 4
mapfile -t pids < <(ranks_of "$job")
kill -9 "${pids[0]}" "${pids[2]}"
"$tutti" train --elastic "$work/both" --join --epochs 300 >"$work/new.out" 2>"$work/new.log" &
new=$!
eventually grep -q "joined as rank 2 of 3" "$work/new.log"
kill -9 "${pids[1]}"
wait "$job" || fail "exit code $? of the job"
wait "$new" || fail "exit code $? of the new rank"
grep '^weights' "$work/new.out" >>"$work/both.log" || fail "the new rank has no weights"
same both 2

echo "== what people get wrong"
refused() {
  local code=0 words=$1
  shift
  "$tutti" "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" = 2 ] || fail "exit code $code of: $*"
  grep -qF -- "$words" "$work/err" || { cat "$work/err"; fail "does not say '$words': $*"; }
}
refused "needs --elastic" train --join
refused "leave --ranks out" train --elastic "$work" --ranks 2
refused "$work/none" train --elastic "$work/none"
mkdir -m 777 "$work/open"
refused "others may write there" train --elastic "$work/open"
refused "leave out --hosts" run --elastic --hosts localhost -- true
code=0
TUTTI_TIMEOUT_MS=300 "$tutti" train --elastic "$work" --join >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 1 ] || fail "exit code $code where nobody trains"
grep -q "has taken this one in" "$work/err" || fail "does not say that nobody trains"
mkdir -m 700 "$work/full"
# Every write fails as on a full disk, but by the limit of a file's size.
(trap '' XFSZ; ulimit -f 0; "$tutti" train --elastic "$work/full" --join 2>&1 || true) | cat >"$work/err"
grep -q "can't write into the folder $work/full: File too large" "$work/err" ||
  { cat "$work/err"; fail "does not say why it can't write"; }
[ -z "$(ls -A "$work/full")" ] || fail "left a draft"
