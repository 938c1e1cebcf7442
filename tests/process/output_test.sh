#!/usr/bin/env bash
# A failed write is an error: to a standard output that is full or closed, and to files. A bad path is
# reported before the work, and a file has the whole text or keeps what it had.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
perf=$TEST_BUILD_DIR/perf
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

"$tutti" plan --ranks 2 >"$work/two.plan"
"$tutti" topo export --model dgx1-v100 >"$work/a.topo"
"$tutti" topo capture "$work/here.tar"
small=(-b 8 -e 1K -f 4 -n 2 -w 1)
# A line for every command that writes to standard output.
commands=(
  "$tutti --help" "$tutti --version" "$tutti plan --help"
  "$tutti plan --ranks 4" "$tutti plan --ranks 64" "$tutti plan --check $work/two.plan"
  "$tutti info" "$tutti info --json"
  "$tutti topo show --model dgx1-v100" "$tutti topo show --model dgx1-v100 --json"
  "$tutti topo check --model dgx1-v100" "$tutti topo why gpu0 gpu7 --model dgx1-v100"
  "$tutti topo diff $work/a.topo $work/a.topo" "$tutti topo replay $work/here.tar"
  "$tutti topo import $work/a.topo" "$tutti topo export --model hgx-h100"
  "$tutti topo bound --model dgx1-v100" "$tutti topo embed --model dgx1-v100"
  "$tutti simulate --model dgx1-v100 --bytes 64K" "$tutti simulate --model dgx1-v100 --bytes 64K --json"
  "$tutti explain --model dgx1-v100 --bytes 64K" "$tutti explain --ranks 2 --plan"
  "$tutti train --epochs 1 --target-accuracy 0"
  "$tutti train --epochs 1 --target-accuracy 0 --ranks 2"
  "$tutti tune -n 2 --quick --max-bytes 64 --collective broadcast --force -o $work/t.json"
  "$tutti run -n 2 -- echo something" "$tutti run -n 2 -- seq 100000"
  "$perf/all_reduce_perf --ranks 2 ${small[*]}" "$perf/all_reduce_perf -t 2 ${small[*]}"
  "$perf/all_reduce_perf --help"
)
for collective in reduce_scatter all_gather broadcast reduce gather scatter all_to_all; do
  commands+=("$perf/${collective}_perf --ranks 2 ${small[*]}")
done

# refused WORDS COMMAND: not 0, and one line on stderr that says so.
refused() {
  local words=$1 code=$2
  if [ "$code" = 0 ] || [ "$code" -ge 124 ]; then fail "exit code $code: $3"; fi
  # Leave out what is not about the output: warnings, and findings while a machine was read.
  grep -Ev '^tutti (tune: this machine (is|was) busy|topo: host0: )' "$work/err" >"$work/said" || true
  [ "$(wc -l <"$work/said")" = 1 ] || { cat "$work/err"; fail "not one line: $3"; }
  grep -qF "standard output could not be written: $words" "$work/said" ||
    { cat "$work/err"; fail "does not say '$words': $3"; }
}
echo "== standard output that is full, or closed"
for command in "${commands[@]}"; do
  code=0
  # shellcheck disable=SC2086 # Words.
  timeout 60 $command >/dev/full 2>"$work/err" || code=$?
  refused "No space left on device" "$code" "$command >/dev/full"
  code=0
  # shellcheck disable=SC2086
  timeout 60 $command >&- 2>"$work/err" || code=$?
  refused "Bad file descriptor" "$code" "$command >&-"
done
# Where stacks are small, as batch systems can set them.
(ulimit -s 64 && "$tutti" run -n 2 -- seq 50000 >"$work/out" 2>"$work/err") ||
  fail "run with a stack of 64 KiB: $(cat "$work/err")"
[ "$(wc -l <"$work/out")" = 100000 ] || fail "run with a stack of 64 KiB: not all lines"
"$tutti" run -n 2 -- true >&- 2>"$work/err" || fail "run: nothing had to be written: $(cat "$work/err")"

# More than a pipe holds.
echo "== a reader that goes away"
for command in "$tutti plan all_gather --ranks 128 --algorithm ring" "$perf/all_reduce_perf --ranks 2 -b 8 -e 1K -i 8 -n 1000"; do
  code=0
  # shellcheck disable=SC2086
  (set -o pipefail; timeout 60 $command 2>"$work/err" | head -n 1 >"$work/out") || code=$?
  [ "$code" = 141 ] || fail "exit code $code: $command | head"
  [ -s "$work/err" ] && { cat "$work/err"; fail "complains: $command | head"; }
done

echo "== files that cannot be written"
# unwritable REASON OPTION COMMAND...: code 2 and one line with the reason, before any output.
unwritable() {
  local reason=$1 option=$2 code=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" = 2 ] || fail "exit code $code: $*"
  [ ! -s "$work/out" ] || fail "worked first: $*"
  [ "$(wc -l <"$work/err")" = 1 ] || { cat "$work/err"; fail "not one line: $*"; }
  grep -qE -- "$option: can't write '[^']+': $reason" "$work/err" || { cat "$work/err"; fail "does not say '$reason': $*"; }
}
for path in "$work/none/x" "$work" /proc/x; do
  case $path in
    "$work") reason="Is a directory" ;;
    *) reason="No such file or directory" ;;
  esac
  train=("$tutti" train --epochs 3 --target-accuracy 0)
  unwritable "$reason" --plot "${train[@]}" --plot "$path"
  unwritable "$reason" --json "${train[@]}" --json "$path"
  unwritable "$reason" --output "$tutti" tune -n 2 --quick -o "$path"
  unwritable "$reason" --svg "$tutti" topo show --model dgx1-v100 --svg "$path"
  unwritable "$reason" --output "$tutti" topo export --model dgx1-v100 -o "$path"
  unwritable "$reason" FILE "$tutti" topo capture "$path"
  unwritable "$reason" --svg "$tutti" explain --model dgx1-v100 --bytes 64K --svg "$path"
  unwritable "$reason" --svg "$tutti" explain --ranks 2 --bytes 64K --svg "$path"
  unwritable "$reason" --svg "$tutti" simulate --model dgx1-v100 --bytes 64K --svg "$path"
  unwritable "$reason" --csv "$tutti" simulate --model dgx1-v100 --bytes 64K --csv "$path"
  for option in --output_file --csv --plot; do
    unwritable "$reason" $option "$perf/all_reduce_perf" --ranks 2 "${small[@]}" $option "$path"
  done
done
[ ! -e "$work/none" ] || fail "a folder was made"

echo "== files that can"
before=$(ls "$work")
"$tutti" topo export --model dgx1-v100 -o "$work/new.topo"
cmp "$work/a.topo" "$work/new.topo" || fail "-o and standard output differ"
chmod 640 "$work/new.topo"
ln -s new.topo "$work/link.topo"
"$tutti" topo export --model hgx-h100 -o "$work/link.topo"
[ -L "$work/link.topo" ] || fail "a link was replaced"
[ "$(stat -c %a "$work/new.topo")" = 640 ] || fail "the mode changed"
grep -q hgx-h100 "$work/new.topo" || fail "not written through the link"
"$tutti" topo show --model dgx1-v100 --svg /dev/null >/dev/null || fail "/dev/null"
[ "$("$tutti" topo export --model dgx1-v100 -o - | cmp - "$work/a.topo")" = "" ] || fail "-o -"
# A disk that is full loses the new text, not the old one.
code=0
"$tutti" topo export --model dgx1-v100 -o /dev/full 2>"$work/err" || code=$?
[ "$code" = 1 ] || fail "/dev/full: exit code $code"
grep -q "No space left on device" "$work/err" || fail "/dev/full: $(cat "$work/err")"
left=$(ls "$work")
[ "$(comm -13 <(echo "$before") <(echo "$left" | grep -v 'new.topo\|link.topo\|err'))" = "" ] || fail "left over: $left"
[ "$failures" = 0 ] || exit 1
echo ok
