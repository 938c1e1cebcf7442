#!/usr/bin/env bash
# tutti tune: measures, writes a table that programs find, keeps a file's other tables, and says what
# is wrong with its arguments.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
fail() { echo "FAILED: $*"; exit 1; }
# Whether the machine is busy is not tested here (unit/noise_test).
tune() { "$tutti" tune --quick --max-bytes 16K --force "$@"; }

tune -n 2 --collective all_reduce >"$work/out" || fail "tune: $(cat "$work/out")"
file=$XDG_CACHE_HOME/tutti/tuning.json
[ -s "$file" ] || fail "nothing was written to $file"
grep -q "2 ranks on .* CPUs, shared_memory: adds at" "$work/out" || fail "no summary: $(cat "$work/out")"
for link in "in_process  *between threads" "shared_memory  *between ranks of a host"; do
  grep -Eq "^  $link +[0-9.]+ us +[0-9.e+]+ GB/s$" "$work/out" || fail "no $link: $(cat "$work/out")"
done
grep -q "^  all_reduce  *plain  *[a-z]" "$work/out" || fail "no line for all_reduce"
[ "$(awk 'length > 100' "$work/out" | wc -l)" = 0 ] || fail "a line of more than 100 columns"

# Ranks that are processes find it by themselves; rank 0 says so.
found=$("$tutti" run -n 2 --no-prefix -- bash -c "'$TEST_BUILD_DIR'/perf/all_reduce_perf -b 1K -e 1K -n 5 -w 1" 2>&1) ||
  fail "a sweep with the table: $found"
# Threads are of another transport; the file is asked for by name, and says why not.
TUTTI_TUNING=$file "$tutti" info | grep "is not used: made over shared_memory" >/dev/null ||
  fail "info does not say why the table is not used"

# A second table goes beside the first; the same one again takes its place.
tune -n 3 --collective broadcast --collective gather >"$work/out" || fail "tune -n 3"
tune -n 2 --collective broadcast >"$work/out" || fail "tune -n 2 again"
[ "$(grep -c '"machine"' "$file")" = 2 ] || fail "$(grep -c '"machine"' "$file") tables, not 2"
grep -q '"all_reduce"' "$file" && fail "the old table of 2 ranks is still there"

# Before it is written, the difference from the table that is there is shown.
grep -q "^changes of $file:" "$work/out" || fail "no changes: $(cat "$work/out")"
grep -q "^  gather .* -> " "$work/out" && fail "changes of a table of 3 ranks: $(cat "$work/out")"
grep -Eq "^  all_reduce  *plain .*[a-z_:0-9]+ -> not in the table" "$work/out" ||
  fail "all_reduce leaves the table, unsaid: $(cat "$work/out")"
tune -n 2 --collective broadcast --output "$work/new.json" >"$work/out" || fail "tune into a new file"
grep -q "^$work/new.json has no table for these ranks yet" "$work/out" || fail "a new file: $(cat "$work/out")"

# Threads have a table of their own.
tune -n 2 --threads --collective gather >"$work/out" || fail "--threads"
TUTTI_TUNING=$file "$TEST_BUILD_DIR/perf/all_reduce_perf" -t 2 -b 8 -e 8 -n 1 >"$work/out" 2>&1 || fail "threads"
grep -q "^# tuning: $file (machine .*, in_process, 2 ranks" "$work/out" || fail "threads do not find their table"

# Over a network each rank of this host stands for a host.
TUTTI_TRANSPORT=tcp tune -n 2 --collective gather --output "$work/tcp.json" >"$work/out" || fail "tcp"
grep -q "2 ranks on 2 hosts, .*, tcp: adds at" "$work/out" || fail "tcp: $(cat "$work/out")"

tune -n 2 --collective gather --output "$work/mine.json" >"$work/out" || fail "--output"
[ -s "$work/mine.json" ] || fail "--output wrote nothing"

# A busy machine gets no table. These processes are always ready to run.
burners=()
for ((i = $(nproc); i > 0; --i)); do
  (while :; do :; done) &
  burners+=($!)
done
code=0
"$tutti" tune -n 2 --quick --collective gather --output "$work/busy.json" >"$work/out" 2>"$work/err" || code=$?
# With --force it gets one, and is said to have been busy.
tune -n 2 --collective gather --output "$work/forced.json" >"$work/out" 2>"$work/forced" ||
  fail "--force on a busy machine: $(cat "$work/forced")"
kill "${burners[@]}"
[ "$code" = 1 ] || fail "tune on a busy machine: exit code $code"
grep -Eq "^tutti tune: .*busy: load [0-9]+ on $(nproc --all) CPUs?; stop the other work" "$work/err" ||
  fail "tune on a busy machine: $(cat "$work/err")"
[ ! -e "$work/busy.json" ] || fail "a table of a busy machine"
[ -s "$work/forced.json" ] || fail "--force wrote nothing"
grep -q "^tutti tune: this machine was busy: .*; the table may be wrong, and is written as --force says" "$work/forced" ||
  fail "--force does not say that the machine was busy: $(cat "$work/forced")"

expect_usage() {
  local code=0
  "$tutti" tune "$@" >"$work/out" 2>&1 || code=$?
  [ "$code" = 2 ] || fail "tune $*: exit code $code"
}
expect_usage --collective nonsense
grep -q "unknown collective 'nonsense'; there are all_reduce" "$work/out" || fail "$(cat "$work/out")"
expect_usage --max-bytes x
expect_usage -n 1
echo ok
