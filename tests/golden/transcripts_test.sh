#!/usr/bin/env bash
# What commands print, word for word. Each file of transcripts/ is a session: a line "$ command" and
# what it printed, both streams, and its exit code if that is not 0. The test runs the commands of
# each file again, in the folder of the sources, and compares. To write down what they print now:
#
#   tests/golden/transcripts_test.sh --update [build folder]
#
# and look at `git diff`. A new golden text is a new file with nothing but "$ command" lines.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
update=false
if [ "${1:-}" = --update ]; then
  update=true
  TEST_BUILD_DIR=${2:-build/release}
fi
bin=$(cd "$TEST_BUILD_DIR/tools" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH=$bin:$PATH LC_ALL=C

# replay FILE: its commands, run again.
replay() {
  local line code
  while IFS= read -r line; do
    case $line in '$ '*) ;; *) continue ;; esac
    printf '%s\n' "$line"
    code=0
    # In a shell of its own, which does not read the rest of the file.
    bash -c "${line#??}" 2>&1 </dev/null || code=$?
    [ "$code" = 0 ] || echo "exit code $code"
  done <"$1"
}

differ=0
for file in "$here"/transcripts/*.txt; do
  name=$(basename "$file")
  grep -q '^[$] ' "$file" || { echo "FAILED: $name has no command"; exit 1; }
  replay "$file" >"$work/$name"
  cmp -s "$file" "$work/$name" && continue
  if $update; then
    cp "$work/$name" "$file"
    echo "$name: written"
  else
    differ=$((differ + 1))
    diff -u --label "$name, as it was" --label "$name, as it is" "$file" "$work/$name" || true
  fi
done
[ "$differ" = 0 ] || {
  echo "FAILED: $differ texts have changed; if they should have: ${BASH_SOURCE[0]} --update"
  exit 1
}
