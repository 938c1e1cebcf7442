# Shared by the scripts, and sourced by them: where things are, and steps that say how they went.
#
#   step "Building" command...   prints "[2/5] Building ... ok (12 s)"; what the command says goes to
#                                build/logs/<script>-2.log; a failure ends the script with one line
#                                that names the step and the log. On a terminal it shows meanwhile how
#                                far a build is.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=$(basename "$0")
logs=$root/build/logs
mkdir -p "$logs"
step_number=0
step_count=${step_count:-0} # Set by the script before its first step.
jobs=$(nproc)

# The same sources in another folder (a second clone, a CI run) find what was compiled before.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
# The compiler says itself which headers it read; ccache would preprocess each new file once more for that.
export CCACHE_DEPEND=1

fail() {
  echo "scripts/$script: $*" >&2
  exit 1
}

# show_progress HEAD: until the script ends, behind HEAD what Ninja has said last in the step's log.
show_progress() {
  local start=$SECONDS columns done_of what
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    # "[12/385] Building CXX object CMakeFiles/tutti_objects.dir/src/comm/state.cc.o"
    read -r done_of what < <(tail -n 20 "$step_log" | sed -nE 's/^\[([0-9]+\/[0-9]+)\] .* (\S+)$/\1 \2/p' |
      tail -n 1) || continue
    what=${what##*.dir/}
    columns=$(tput cols 2>/dev/null || echo 80)
    printf '\r\033[K%.*s' "$((columns - 1))" "$1${done_of/\// of }, $((SECONDS - start)) s, ${what%.o}"
  done
}

step() {
  local title=$1 start=$SECONDS status=0 head watcher=""
  shift
  step_number=$((step_number + 1))
  step_log=$logs/$script-$step_number.log
  head="[$step_number/$step_count] $title ... "
  printf '%s' "$head"
  : >"$step_log"
  if [ -t 1 ]; then
    show_progress "$head" &
    watcher=$!
  fi
  "$@" >"$step_log" 2>&1 </dev/null || status=$?
  if [ -n "$watcher" ]; then
    kill "$watcher"
    wait "$watcher" 2>/dev/null || true # Its exit code is that of the signal.
    printf '\r\033[K%s' "$head"
  fi
  if [ "$status" -eq 0 ]; then
    echo "ok ($((SECONDS - start)) s)"
    return
  fi
  echo "FAILED ($((SECONDS - start)) s)"
  tail -n 40 "$step_log" | sed 's/^/  | /'
  fail "step $step_number, \"$title\", failed with exit code $status; all it said is in $step_log"
}

# build PRESET [TARGET...]: configures and builds; -k 0 shows all that is broken at once.
build() {
  local preset=$1
  shift
  (cd "$root" && cmake --preset "$preset" && cmake --build --preset "$preset" -j "$jobs" \
    ${1:+--target "$@"} -- -k 0)
}
