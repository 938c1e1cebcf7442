#compdef tutti
# Completion of the command tutti in zsh; `tutti completion zsh` prints this. It knows no option:
# the command itself names what can stand at the cursor (tools/completion/candidates.h).

_tutti() {
  local line text also start failed=1
  local -a lines described
  lines=("${(@f)$(${(Q)~words[1]} candidates "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  also=$lines[1]
  shift lines
  for line in $lines; do
    text=${line#*$'\t'}
    line=${line%%$'\t'*}
    described+=("${line//:/\\:}:$text")
  done
  _describe -V tutti described && failed=0
  case $also in
    files | folders)
      [[ $PREFIX != --*=* ]] || compset -P '--*='
      if [[ $also = files ]]; then _files; else _files -/; fi && failed=0
      ;;
    command)  # Behind "--" is the line of another program.
      start=${words[(i)--]}
      if (( start < CURRENT )); then
        shift $start words
        (( CURRENT -= start ))
        _normal && failed=0
      else
        _command_names -e && failed=0
      fi
      ;;
  esac
  return failed
}

# Sourced, it is made known; in a folder of fpath, the file is the function's first call.
if [[ $funcstack[1] = _tutti ]]; then
  _tutti "$@"
else
  compdef _tutti tutti
fi
