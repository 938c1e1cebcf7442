#!/usr/bin/env bash
# tests/nccl/exports_test.sh LIBRARY: our libnccl.so.2 exports what each list of tests/nccl/lists names
# (NVIDIA's releases and what clients ask for: scripts/nccl-lists), every function of our header, a twin of
# each, and nothing else; and what torch's libraries need where a torch for CUDA is installed (TUTTI_TORCH:
# its folder). Prints a line for each list.
set -euo pipefail
library=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "exports_test: $*" >&2
  exit 1
}

nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort -u >"$work/ours"
grep -vE '^p?nccl' "$work/ours" && fail "exports more than the API"

for list in "$here"/lists/*.txt; do
  name=${list##*/}
  IFS=' ,' read -r mark package _ <"$list"
  [ "$mark" = "#" ] || fail "$name does not begin with its package"
  sed 1d "$list" | sort -u >"$work/list"
  count=$(wc -l <"$work/list")
  [ "$count" -gt 15 ] || fail "$name could not be read"
  grep -vxE 'p?nccl[A-Z][A-Za-z0-9_]*' "$work/list" && fail "$name has what is no name of a function"
  missing=$(comm -13 "$work/ours" "$work/list")
  [ -z "$missing" ] || fail "lacks what $package has or asks for ($name): ${missing//$'\n'/ }"
  printf '%-34s %3d names, all there\n' "$package" "$count"
done

grep -oE '\bnccl[A-Z][A-Za-z0-9]*,' "$here/../../compat/nccl/nccl_functions.h" | tr -d , | sort -u >"$work/header"
[ "$(wc -l <"$work/header")" -gt 60 ] || fail "the list of functions could not be read"
missing=$(comm -13 "$work/ours" "$work/header")
[ -z "$missing" ] || fail "lacks functions of nccl.h: ${missing//$'\n'/ }"
missing=$(comm -13 "$work/ours" <(sed 's/^/p/' "$work/header" | sort))
[ -z "$missing" ] || fail "lacks twins: ${missing//$'\n'/ }"

readelf -d "$library" | grep -F 'soname: [libnccl.so.2]' >/dev/null ||
  readelf -d "$library" | grep -F '[libnccl.so.2]' >/dev/null || fail "is not called libnccl.so.2"

for file in ${TUTTI_TORCH:-"$here"/../../build/venv/lib/python3*/site-packages/torch}/lib/libtorch_cuda.so; do
  [ -f "$file" ] || continue
  nm -D --undefined-only "$file" | awk '{ print $2 }' | grep -E '^nccl' | sort -u >"$work/torch"
  [ -s "$work/torch" ] || fail "$file asks for nothing of NCCL"
  missing=$(comm -13 "$work/ours" "$work/torch")
  [ -z "$missing" ] || fail "lacks what $file asks for: ${missing//$'\n'/ }"
  echo "$(wc -l <"$work/torch") functions that torch asks for: all there"
done
echo "$(wc -l <"$work/ours") functions exported"
