#!/usr/bin/env bash
# What shells complete of the command's words: bash with its script sourced, zsh and fish where they
# are installed. Every subcommand and every option that --help prints is offered.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH=$TEST_BUILD_DIR/tools:$PATH
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
mkdir -p "$work/place/folder"
cd "$work/place"
touch machine.xml "two words.xml"

"$tutti" completion bash >"$work/script.bash"
# shellcheck disable=SC1091 # Made above.
source "$work/script.bash"

# complete_bash WORD...: sets COMPREPLY to what bash offers for the last of the words, split as readline splits.
complete_bash() {
  local word rest
  COMP_WORDS=()
  for word in "$@"; do
    while [[ $word == *[=:]* ]]; do
      rest=${word#*[=:]}
      [ "${word%%[=:]*}" = "" ] || COMP_WORDS+=("${word%%[=:]*}")
      COMP_WORDS+=("${word:$((${#word} - ${#rest} - 1)):1}")
      word=$rest
      [ -n "$word" ] || continue 2
    done
    COMP_WORDS+=("$word")
  done
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _tutti || true  # Outside of a Tab, compopt fails.
}
# offers WORDS EXPECTED...: all of these are offered.
offers() {
  local line=$1 expected all
  shift
  IFS=' ' read -ra words <<<"$line"
  [[ $line != *' ' ]] || words+=("")
  complete_bash "${words[@]}"
  all=$(printf '\n%s' "${COMPREPLY[@]}")$'\n'
  for expected in "$@"; do
    [[ $all == *$'\n'"$expected"$'\n'* ]] ||
      fail "'$line' does not offer '$expected' but: ${COMPREPLY[*]}"
  done
}
# offers_just WORDS EXPECTED...: these, in any order, and nothing else.
offers_just() {
  offers "$@"
  [ ${#COMPREPLY[@]} = $(($# - 1)) ] || fail "'$1' offers ${#COMPREPLY[@]}: ${COMPREPLY[*]}"
}

echo "== bash: subcommands, options, words"
offers "tutti " run info train topo
offers_just "tutti si" simulate
offers_just "tutti topo pre" predict
offers_just "tutti topo show --j" --json
offers_just "tutti plan --contr"
offers_just "tutti simulate --contract " deterministic relaxed
offers_just "tutti simulate --contract rel" relaxed
offers_just "tutti simulate --contract=rel" relaxed
offers_just "tutti simulate --contract=" deterministic relaxed
offers_just "tutti simulate --type bf" bfloat16
offers "tutti explain all_" all_reduce all_gather
offers "tutti train --strategy " ddp zero3
offers_just "tutti train --compare ddp,zero" ddp,zero1 ddp,zero2 ddp,zero3
offers "tutti simulate --algorithm ring,two" ring,two_shot
offers_just "tutti train --model conv --precision " f32 bf16
offers_just "tutti topo show --model hgx-h100" hgx-h100
offers_just "tutti topo show --model hgx-h100:"
offers_just "tutti completion " bash zsh fish
offers_just "tutti tune -n 2 4 --qu" --quick
offers_just "tutti agen"
offers_just "tutti nosuch --js"

echo "== bash: files and folders, and the line of another program"
offers_just "tutti topo show --from m" machine.xml
offers_just "tutti topo show --from=m" machine.xml
offers_just "tutti topo show --from two" "two words.xml"
offers_just "tutti topo import " machine.xml "two words.xml" folder
offers "tutti topo diff hgx-h100 " machine.xml dgx2
offers_just "tutti train --resume " folder
offers_just "tutti run -n 4 " --
offers "tutti run -n 4 -- ca" cat
offers_just "tutti run -n 4 -- cat mach" machine.xml

# subcommands WORDS...: the subcommands of `tutti WORDS`.
subcommands() { "$tutti" "$@" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z-]\{1,\}\) .*/\1/p'; }
# options WORDS...: the options of `tutti WORDS`: "  -n,--ranks COUNT ...", "  --no-prefix{false},--prefix ...".
options() { "$tutti" "$@" --help | sed -nE 's/^  (-[^ ]*).*/\1/p' | sed 's/{[a-z]*}//g' | tr ',' '\n'; }
# all_offered WORDS...: what --help prints of `tutti WORDS`, and of what is below it.
all_offered() {
  local below expected
  mapfile -t below < <(subcommands "$@")
  mapfile -t expected < <(options "$@")
  [ "${#expected[@]}" -ge 2 ] || fail "no options found in: tutti $* --help"
  options_seen=$((options_seen + ${#expected[@]}))
  offers_just "tutti${*:+ $*} -" "${expected[@]}"
  [ "${#below[@]}" = 0 ] || offers_just "tutti${*:+ $*} " "${below[@]}"
  for name in "${below[@]}"; do all_offered "$@" "$name"; done
}
echo "== bash: all that --help prints"
options_seen=0
all_offered
echo "$options_seen options"
[ "$options_seen" -ge 200 ] || fail "only $options_seen options"

echo "== zsh"
if command -v zsh >/dev/null; then
  mkdir "$work/functions"
  "$tutti" completion zsh >"$work/functions/_tutti"
  zsh -n "$work/functions/_tutti" || fail "syntax for zsh"
  cat >"$work/driver.zsh" <<'END'
# driver.zsh WORK: an interactive zsh completes each line of standard input; prints what became of it.
zmodload zsh/zpty
zpty shell zsh -f -i
tell() { zpty -w shell "$1" }
tell "fpath=($1/functions \$fpath); autoload -U compinit; compinit -u -D; unsetopt beep"
tell "show() { print -r -- \"\$BUFFER\" >>$1/lines.zsh; BUFFER= }; zle -N show; bindkey '^I' complete-word '^[x' show"
tell "zle-line-init() { : >$1/ready }; zle -N zle-line-init"
: >$1/lines.zsh
# await COMMAND...: until it succeeds, ten seconds at most; reads what the shell says, or it would stop.
await() {
  for (( i = 0; i < 1000; ++i )); do
    while zpty -r -t shell output; do :; done
    "$@" && return
    sleep 0.01
  done
}
has_lines() { [[ $(wc -l <$1) -ge $2 ]] }
await test -e $1/ready
while IFS= read -r line; do
  (( ++asked ))
  zpty -n -w shell "$line"$'\t\ex'
  await has_lines $1/lines.zsh $asked
done
zpty -d shell
END
  printf '%s\n' "tutti si" "tutti topo pre" "tutti topo show --js" "tutti simulate --contract rel" \
    "tutti simulate --contract=rel" "tutti topo show --from mach" "tutti topo show --from=mach" \
    "tutti train --resume " "tutti train --compare ddp,goss" "tutti run -n 4 -- cat mach" >"$work/asked"
  zsh -f "$work/driver.zsh" "$work" <"$work/asked"
  printf '%s\n' "tutti simulate " "tutti topo predict " "tutti topo show --json " \
    "tutti simulate --contract relaxed " "tutti simulate --contract=relaxed " "tutti topo show --from machine.xml " \
    "tutti topo show --from=machine.xml " "tutti train --resume folder/" "tutti train --compare ddp,gossip " \
    "tutti run -n 4 -- cat machine.xml " >"$work/expected"
  diff "$work/expected" "$work/lines.zsh" || fail "zsh: left expected, right completed"
else
  echo "SKIPPED: no zsh"
fi

echo "== fish"
if command -v fish >/dev/null; then
  "$tutti" completion fish >"$work/script.fish"
  fish --no-execute "$work/script.fish" || fail "syntax for fish"
  # offers_fish LINE EXPECTED...: fish offers these, and nothing else.
  offers_fish() {
    local line=$1
    shift
    # shellcheck disable=SC2016 # fish is to expand it.
    fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$work/script.fish" "$line" |
      cut -f 1 | sort >"$work/offered"
    printf '%s\n' "$@" | sort | diff - "$work/offered" || fail "fish, '$line': left expected, right offered"
  }
  mapfile -t commands < <(subcommands)
  offers_fish "tutti " "${commands[@]}"
  offers_fish "tutti topo pre" predict
  offers_fish "tutti topo show --js" --json
  offers_fish "tutti simulate --contract rel" relaxed
  offers_fish "tutti simulate --contract=rel" --contract=relaxed
  offers_fish "tutti topo show --from mach" machine.xml
  offers_fish "tutti topo show --from=mach" --from=machine.xml
  offers_fish "tutti train --resume fo" folder/
  offers_fish "tutti run -n 4 -- cat mach" machine.xml
else
  echo "SKIPPED: no fish"
fi

echo "== mistakes"
"$tutti" completion tcsh >"$work/out" 2>"$work/err" && fail "a script for tcsh"
[ "$(wc -l <"$work/err")" = 1 ] || fail "not one line: $(cat "$work/err")"
[ "$failures" = 0 ] || exit 1
echo ok
