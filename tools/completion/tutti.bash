# shellcheck shell=bash
# Completion of the command tutti in bash; `tutti completion bash` prints this. It knows no option:
# the command itself names what can stand at the cursor (tools/completion/candidates.h).

# _tutti_line WORDS: sets words to the line's words up to the cursor. Readline splits --type=bf16 and
# hgx-h100:2 at = and :, the command does not.
_tutti_line() {
  local at word glue=''
  for ((at = 1; at <= COMP_CWORD; ++at)); do
    word=${COMP_WORDS[at]}
    if [[ $at -gt 1 && ( $word == [=:]* || $glue ) ]]; then words[-1]+=$word; else words+=("$word"); fi
    glue=''
    [[ $word != [=:]* ]] || glue=yes
  done
}

# What completes the line of another program, behind "--"; the names of programs if there is no "--".
_tutti_program() {
  local at=1
  while [[ $at -lt $COMP_CWORD && ${COMP_WORDS[at]} != -- ]]; do ((++at)); done
  if [[ ${COMP_WORDS[at]} == -- ]] && declare -F _comp_command_offset >/dev/null; then
    _comp_command_offset $((at + 1))
  elif [[ ${COMP_WORDS[at]} == -- ]] && declare -F _command_offset >/dev/null; then
    _command_offset $((at + 1))
  elif [[ $((at + 1)) -lt $COMP_CWORD ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
    compopt -o filenames -o default 2>/dev/null
  else
    mapfile -t COMPREPLY < <(compgen -c -- "$1")
  fi
}

_tutti() {
  local words=() also='' word value breaks prefix
  _tutti_line
  local current=${words[-1]} command=${COMP_WORDS[0]/#\~/$HOME}
  value=$current
  [[ $current != --*=* ]] || value=${current#*=}
  COMPREPLY=()
  {
    read -r also
    while IFS=$'\t' read -r word _; do
      [[ $word != "$current"* ]] || COMPREPLY+=("$word")
    done
  } < <("$command" candidates "${words[@]}" 2>/dev/null)
  case $also in
    command) _tutti_program "$value" && return ;;
    files | folders)
      # Where a name is quoted, compgen finds nothing and readline does by itself.
      compopt -o filenames -o default 2>/dev/null
      local option=-f
      [[ $also == files ]] || option=-d
      while read -r word; do COMPREPLY+=("${current%"$value"}$word"); done < <(compgen $option -- "$value")
      ;;
  esac
  # Readline replaces no more than what follows the last character that it splits at.
  breaks=${COMP_WORDBREAKS//[^=:]/}
  [[ $breaks ]] || return 0
  prefix=${current%"${current##*["$breaks"]}"}
  COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}

complete -F _tutti tutti
