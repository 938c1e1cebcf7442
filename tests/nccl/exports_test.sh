#!/usr/bin/env bash
# tests/nccl/exports_test.sh LIBRARY: our libnccl.so.2 exports what NVIDIA's 2.28, 2.30 and 2.32
# export (exports_*.txt), what libtorch_cuda.so of torch 2.13 and 2.15 needs (torch_*.txt), every
# function of our header, a twin of each, and nothing else; and what torch's libraries need where a
# torch for CUDA is installed (TUTTI_TORCH: its folder).
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

for list in "$here"/exports_*.txt "$here"/torch_*.txt; do
  [ "$(wc -l <"$list")" -gt 40 ] || fail "$list could not be read"
  missing=$(comm -13 "$work/ours" <(sort "$list"))
  [ -z "$missing" ] || fail "lacks what ${list##*/} lists: ${missing//$'\n'/ }"
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
