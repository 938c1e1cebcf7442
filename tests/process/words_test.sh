#!/usr/bin/env bash
# The output of the commands: help that fits, right headings and numbers, and the lines of docs/ that
# can be tried here.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
perf=$TEST_BUILD_DIR/perf
docs=$TEST_SOURCE_DIR/docs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

echo "== help in 100 columns"
# subcommands WORDS...: the subcommands of `tutti WORDS`.
subcommands() { "$tutti" "$@" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]\{1,\}\) .*/\1/p'; }
mapfile -t commands < <(subcommands)
mapfile -t topo < <(subcommands topo)
[ "${#commands[@]}" -ge 8 ] || fail "only ${#commands[@]} subcommands: ${commands[*]}"
[ "${#topo[@]}" -ge 10 ] || fail "only ${#topo[@]} subcommands of topo: ${topo[*]}"
for command in "$tutti" "${commands[@]/#/$tutti }" "${topo[@]/#/$tutti topo }" "$perf"/*_perf; do
  # shellcheck disable=SC2086 # Words.
  $command --help >"$work/out"
  awk 'length > 100 { print; bad = 1 } END { exit bad }' "$work/out" || fail "$command --help"
done

echo "== amounts"
# refused WORDS COMMAND...: exit code 2, and one line with these words.
refused() {
  local words=$1 code=0
  shift
  "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" = 2 ] || fail "exit code $code: $*"
  [ "$(wc -l <"$work/err")" = 1 ] || { cat "$work/err"; fail "not one line: $*"; }
  grep -qF -- "$words" "$work/err" || { cat "$work/err"; fail "does not say '$words': $*"; }
}
refused "3 bytes are no whole number of float32, of 4 bytes each" "$tutti" explain --ranks 2 --bytes 3
refused "3 bytes are no whole number" "$tutti" explain --model dgx1-v100 --bytes 3
refused "1 bytes are no whole number of bf16" "$tutti" simulate --model dgx1-v100 --bytes 1 --type bf16
"$tutti" explain --model dgx1-v100 --bytes 8 | grep "^all_reduce of 8 bytes of float32 on" >"$work/out" || fail "8 bytes"
"$tutti" explain --ranks 2 --bytes 64K | grep "^all_reduce of 64 KiB of float32 between" >"$work/out" || fail "64 KiB"
"$tutti" train --epochs 1 --target-accuracy 0 | grep "^1 rank, ddp: " >"$work/out" || fail "1 rank"
refused "--blocking" "$perf/all_reduce_perf" --ranks 2 -z 2
[ "$("$tutti" info | grep -cE '^  [a-z_]+ += [^ ]')" -gt 10 ] || fail "info: no settings"
[ "$("$tutti" info | sed -n 's/^\(  [a-z_]* *\)= [^ ].*/\1/p' | awk '{ print length }' | sort -u | wc -l)" = 1 ] ||
  fail "info: the settings do not stand below each other"
# A long value moves the rest of its line to the next one.
for interfaces in "" "lo,$(seq -s, -f 'eth%g' 0 9)"; do
  TUTTI_NET_INTERFACES=$interfaces "$tutti" info >"$work/out"
  awk 'length > 100 { print; bad = 1 } END { exit bad }' "$work/out" || fail "info is wider than 100 columns"
done

echo "== the nearest name"
# meant WORD COMMAND...: exit code 2, and one line that asks whether WORD was meant and says where to see all.
meant() {
  refused "; did you mean '$1'? " "${@:2}"
  grep -qE "\? (See .* --help|There are .+)$" "$work/err" || { cat "$work/err"; fail "does not say where to look: $*"; }
}
meant info "$tutti" inf
meant train "$tutti" trian --ranks 2
meant show "$tutti" topo shwo
meant --bytes "$tutti" explain --bytess 64
meant --bytes "$tutti" explain --bytess=64
meant --model "$tutti" simulate --modl hgx-h100
meant --hosts "$tutti" run -n 2 --hosst=a -- true
meant --ranks "$tutti" run --rnks 2 -- true
meant --hosts "$tutti" run --hosst a -n 2 -- true
meant --ranks "$perf/all_reduce_perf" --rnks 2
meant sum "$perf/all_reduce_perf" --op smu
meant bfloat16 "$perf/all_reduce_perf" --datatype bfloat61
meant float32 "$tutti" explain --type flot32
meant float32 "$tutti" simulate --model hgx-h100 --type flaot32
meant all_reduce "$tutti" explain all_redcue --model hgx-h100
meant all_reduce "$tutti" plan all_redcue
meant all_reduce "$tutti" tune --collective all_redcue
meant ring "$tutti" explain --model hgx-h100 --algorithm rng
meant hgx-h100 "$tutti" topo show --model hgx-h10
meant zero1 "$tutti" train --strategy zer1
meant zero1 "$tutti" train --compare ddp,zer1
meant bash "$tutti" completion bsh
for word in frobnicate x; do
  refused "unknown command '$word'; see tutti --help" "$tutti" "$word"
  refused "unknown option '--$word'; see tutti topo --help" "$tutti" topo "--$word"
done

echo "== models"
"$tutti" topo models >"$work/out"
while read -r model _; do
  "$tutti" topo show --model "$model" --json >"$work/json" || fail "no model $model"
done < <(grep -v '^ ' "$work/out")
grep -q '^hgx-h100 ' "$work/out" || fail "topo models"
refused "hgx-h100" "$tutti" topo show --model nosuch
if "$tutti" run --simulated-gpus 1 -- true 2>/dev/null; then
  refused "hgx-h100" "$tutti" run --simulated-gpus 8 --model nosuch -- true
fi

echo "== a variable of scripts/netns is no misspelt setting"
TUTTI_NETNS=here "$tutti" info >"$work/out" 2>"$work/err"
[ ! -s "$work/err" ] || fail "TUTTI_NETNS: $(cat "$work/err")"
TUTTI_NETN=here "$tutti" info 2>&1 >"$work/out" | grep "no setting has that name" >"$work/err" || fail "TUTTI_NETN"

echo "== docs/plan-format.md, \"A plan of your own\""
awk '/^## A plan of your own/ { part = 1 } part && /^```/ { if (on) exit; on = 1; next } on' "$docs/plan-format.md" |
  sed 's/   .*//; s|\./program|all_reduce_perf --ranks 4 -b 1K -e 1K -c 1|' >"$work/lines"
[ "$(wc -l <"$work/lines")" = 4 ] || fail "docs/plan-format.md has other lines"
(cd "$work" && PATH=$TEST_BUILD_DIR/tools:$perf:$PATH bash -eu lines) >"$work/out" 2>&1 ||
  { cat "$work/lines" "$work/out"; fail "docs/plan-format.md"; }
[ "$failures" = 0 ] || exit 1
echo ok
