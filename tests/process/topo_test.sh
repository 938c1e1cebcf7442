#!/usr/bin/env bash
# tutti topo as its users see it: every model shown, checked and explained, files there and back, and
# one line for what is wrong.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; exit 1; }

echo "== this machine, whatever it is"
"$tutti" topo show >"$work/here"
"$tutti" topo check >"$work/check" || [ $? -le 2 ] || fail "check"
"$tutti" topo capture "$work/here.tar.gz"
"$tutti" topo show --from "$work/here.tar.gz" | grep -v ' NVML' >"$work/there"
grep -v ' NVML' "$work/here" | diff - "$work/there" || fail "a capture shows another machine"

echo "== models"
for model in dgx1-v100 hgx-h100 gb200-nvl72 mi300x pcie-8 cpu-2s hgx-h100:2; do
  "$tutti" topo show --model "$model" --svg "$work/picture.svg" >"$work/show" || fail "show $model"
  awk 'length($0) > 100 { print; exit 1 }' "$work/show" || fail "show $model: wider than 100 columns"
  python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$work/picture.svg"
  "$tutti" topo check --model "$model" >"$work/check" || { cat "$work/check"; fail "check $model"; }
  "$tutti" topo bound --model "$model" | grep '^all_gather .*exact' >/dev/null || fail "bound $model"
  "$tutti" topo embed --model "$model" | grep '^[0-9]* lanes* (.*) gathers* ' >/dev/null || fail "embed $model"
  "$tutti" topo export --model "$model" -o "$work/a.topo"
  "$tutti" topo export --from "$work/a.topo" -o "$work/b.topo"
  cmp "$work/a.topo" "$work/b.topo" || fail "$model: the text form does not come back"
  "$tutti" topo diff "$model" "$work/a.topo" >"$work/diff" || { cat "$work/diff"; fail "diff $model"; }
done
"$tutti" topo why gpu0 gpu5 --model dgx1-v100 | grep '^NVB' >/dev/null || fail "gpu0 and gpu5 of a DGX-1"
"$tutti" topo embed --model pcie-4 --json | python3 -c '
import json, sys
for lane in json.load(sys.stdin)["lanes"]:
    assert [sorted(tree)[0] for tree in lane["parents"]] == [-1] * 4, lane' || fail "trees as JSON"
"$tutti" topo show --model hgx-h100 --json | python3 -c 'import json, sys; json.load(sys.stdin)'

echo "== what people get wrong"
# refused WORDS ARGUMENT...: exit code 2, and one line on stderr with these words.
refused() {
  local words=$1 code=0
  shift
  "$tutti" topo "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" != 0 ] || fail "taken: $*"
  grep -qF -- "$words" "$work/err" || { cat "$work/err"; fail "does not say '$words': $*"; }
  [ "$(wc -l <"$work/err")" = 1 ] || { cat "$work/err"; fail "not one line: $*"; }
}
refused "hgx-h100" show --model hgx-h1000
refused "$work/none" show --from "$work/none"
refused "gpu99" why gpu99 gpu0 --model hgx-h100
refused "nccl_xml" export --model cpu-2s --format nothing
echo '<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" rank="0" sm="80"><nvlink target="0000:01:00.0" count="12" tclass="0x030200"/></gpu></pci></cpu></system>' >"$work/self.xml"
refused "self.xml:1" show --from "$work/self.xml"
head -c 700 "$TEST_SOURCE_DIR/CMakeLists.txt" >"$work/text"
refused "no known form" import "$work/text"
